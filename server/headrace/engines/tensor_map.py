"""How the tensors that clients see are those of the engine: order and `reshape`; pure."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.engines.base import Shape
from headrace.errors import EngineError

Pattern = tuple[int | None, ...]  # None: any size


@dataclass(frozen=True, slots=True)
class TensorMap:
    """How one tensor of the client's is one of the engine's.

    Attributes:
        index: The tensor's place among the engine's inputs or outputs.
        client: The shape that clients see.
        engine: The shape that the engine sees; None when it is the same, and nothing is to do.
    """

    index: int
    client: Pattern
    engine: Pattern | None = None

    def to_engine(self, shape: Shape) -> Shape:
        """Return the engine's shape for a client's shape that fits `client`.

        Raises:
            EngineError: It does not fit.
        """
        return shape if self.engine is None else _remold(shape, self.client, self.engine)

    def to_client(self, shape: Shape) -> Shape:
        """Return the client's shape for an engine's shape.

        Raises:
            EngineError: The engine made another shape than the configuration says.
        """
        return shape if self.engine is None else _remold(shape, self.engine, self.client)


def _remold(shape: Shape, before: Pattern, after: Pattern) -> Shape:
    """Put the sizes of the dynamic dimensions of one pattern into those of the other, in order."""
    fits = len(shape) == len(before) and all(
        wanted in (None, size) for size, wanted in zip(shape, before, strict=True)
    )
    if not fits:
        expected = [-1 if size is None else size for size in before]
        raise EngineError(f"shape {list(shape)} came, but the configuration says {expected}")
    sizes = iter([size for size, wanted in zip(shape, before, strict=True) if wanted is None])
    return tuple(next(sizes) if size is None else size for size in after)
