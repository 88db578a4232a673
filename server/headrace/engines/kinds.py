"""Lays calls out, and says which of them can share a batch: those of one kind.

A kind is a set of calls that differ in their number of rows alone. A request is laid out for its
own rows; a batch for all of them together, or for more where that many rows are captured in a CUDA
graph, or where no optimization profile takes just so many.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from headrace.engines.base import Engine, Kind, Layout, Shape, ShapedByValues
from headrace.engines.layout import can_batch, num_elements, plan_layout
from headrace.errors import RequestError
from headrace_proto.datatypes import DATATYPES

MAX_KINDS = 64  # kept ready a model, each with a layout for each number of rows

Tails = tuple[Shape, ...]  # the inputs' shapes without their rows


def lay_out(
    engine: Engine, shapes: Sequence[Shape], sizes: Sequence[int], values: Sequence[bytes] = ()
) -> Layout:
    """Lay out a call in the engine's own shapes; outputs get their places where they are known.

    Raises:
        RequestError: No optimization profile takes these values of shape tensors.
    """
    outputs = engine.signature.outputs
    if values and isinstance(engine, ShapedByValues):
        output_shapes: Sequence[Shape] | None = engine.shapes_under(shapes, values)
    else:
        output_shapes = engine.output_shapes(shapes)
    if output_shapes is None or any(output.datatype == "BYTES" for output in outputs):
        return plan_layout(shapes, sizes, None, ())
    output_sizes = [
        num_elements(shape) * DATATYPES[output.datatype].itemsize_bytes
        for output, shape in zip(outputs, output_shapes, strict=True)
    ]
    return plan_layout(shapes, sizes, output_shapes, output_sizes, values)


class Kinds:
    """The kinds of calls of one model."""

    def __init__(self, engine: Engine, max_rows: int = 1) -> None:
        """Start with none.

        Args:
            engine: The model's.
            max_rows: Of a batch; 1 where every request runs alone.
        """
        self._engine = engine
        self._max_rows = max_rows
        inputs = engine.signature.inputs
        self._can_batch = max_rows > 1 and not any(
            spec.is_shape_tensor or spec.datatype == "BYTES" for spec in inputs
        )
        self._families: dict[Tails, _Family] = {}
        self._lasting: set[Tails] = set()  # of layouts that ran at load: their graphs are kept

    def lay_out(
        self, shapes: Sequence[Shape], sizes: Sequence[int], values: Sequence[bytes] = ()
    ) -> Layout:
        """Return the layout of a call whose shapes the engine takes; its `kind` if it has one.

        Raises:
            RequestError: No optimization profile takes these values of shape tensors.
        """
        if not self._can_batch or not all(shapes) or len({shape[0] for shape in shapes}) != 1:
            return lay_out(self._engine, shapes, sizes, values)
        tails, rows = tuple(shape[1:] for shape in shapes), shapes[0][0]
        family = self._families.get(tails)
        if family is None:
            family = self._open(tails, rows)
        return family.layout(rows)

    def settle(self, layouts: Sequence[Layout], least_rows: Mapping[Layout, int]) -> None:
        """Note what ran at load; may be called again with more.

        Args:
            layouts: They and their kinds are kept for good.
            least_rows: Of those that fewer rows, down to so many, are padded to; 0 for none.
        """
        for layout in layouts:
            tails = tuple(shape[1:] for shape in layout.input_shapes)
            family = self._families.get(tails)
            if family is not None and layout.kind is family.kind is not None:
                self._lasting.add(tails)
                rows, least = layout.input_shapes[0][0], least_rows.get(layout, 0)
                if least and family.targets.get(rows) != least:
                    family.targets[rows] = least
                    family.kind.forget()

    def _open(self, tails: Tails, rows: int) -> _Family:
        if len(self._families) >= MAX_KINDS + len(self._lasting):
            del self._families[next(t for t in self._families if t not in self._lasting)]
        family = self._families[tails] = _Family(self._engine, tails, rows, self._max_rows)
        return family


class _Family:
    """Calls with equal shapes but for their rows: a kind, if the outputs follow the rows."""

    def __init__(self, engine: Engine, tails: Tails, rows: int, max_rows: int) -> None:
        """Find out whether such calls can share a batch; the engine takes `rows` of them."""
        self._engine = engine
        self._tails = tails
        self._layouts: dict[int, Layout] = {}
        self.targets: dict[int, int] = {}  # rows of a graph → the least that is padded to them
        self.kind: Kind | None = None
        most = max(rows, self._most_rows(max_rows))
        wider = self._plan(most)
        others = {rows, 1} if self._takes(1) else {rows}
        if all(can_batch(self._plan(each), wider) for each in others):
            self.kind = Kind(self._plan_batch, most)

    def layout(self, rows: int) -> Layout:
        """Return the layout of so many rows, as they lie in a block; always the same one."""
        layout = self._layouts.get(rows)
        if layout is None:
            layout = self._layouts[rows] = replace(self._plan(rows), kind=self.kind)
        return layout

    def _plan_batch(self, rows: int) -> Layout:
        """Lay a batch out for as many rows as shall run."""
        padded = [more for more, least in self.targets.items() if least <= rows <= more]
        if padded:
            return _trimmed(self.layout(min(padded)), rows)
        assert self.kind is not None
        for more in range(rows, self.kind.max_rows + 1):
            if self._takes(more):
                return _trimmed(self.layout(more), rows)
        raise RequestError(f"a batch of {rows} rows is more than the {self.kind.max_rows} that fit")

    def _plan(self, rows: int) -> Layout:
        shapes = self._shapes(rows)
        sizes = [
            num_elements(shape) * DATATYPES[spec.datatype].itemsize_bytes
            for spec, shape in zip(self._engine.signature.inputs, shapes, strict=True)
        ]
        return lay_out(self._engine, shapes, sizes)

    def _most_rows(self, limit: int) -> int:
        """Return the most rows up to `limit` that an optimization profile takes, 0 for none."""
        ends = {limit, *(rows for rows in self._engine.profile_rows if rows < limit)}
        return next((rows for rows in sorted(ends, reverse=True) if self._takes(rows)), 0)

    def _takes(self, rows: int) -> bool:
        try:
            self._engine.check_inputs(self._shapes(rows))
        except RequestError:
            return False
        return True

    def _shapes(self, rows: int) -> tuple[Shape, ...]:
        return tuple((rows, *tail) for tail in self._tails)


def _trimmed(target: Layout, rows: int) -> Layout:
    """Lay fewer rows out so that they run as the target, of a kind."""
    whole = target.input_shapes[0][0]
    if rows == whole:
        return target
    assert target.output_shapes is not None
    return replace(
        target,
        input_shapes=tuple((rows, *shape[1:]) for shape in target.input_shapes),
        input_sizes=tuple(size // whole * rows for size in target.input_sizes),
        output_shapes=tuple((rows, *shape[1:]) for shape in target.output_shapes),
        output_sizes=tuple(size // whole * rows for size in target.output_sizes),
        padded_to=target,
    )
