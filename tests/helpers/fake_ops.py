"""What the engines of the fake TensorRT compute: a few operations with their shape rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Op:
    """Shapes of the outputs from input shapes and host values; values of the outputs from inputs.

    A host value is None until its address is set.
    """

    shapes: Callable[[Sequence[Shape], Sequence[Array | None]], list[Shape]]
    run: Callable[[Sequence[Array]], list[Array]]


def _fill_shape(shapes: Sequence[Shape], values: Sequence[Array | None]) -> list[Shape]:
    (size,) = values
    return [(-1, -1) if size is None else tuple(map(int, size))]


OPS = {
    # y = 2 x for every input, each into its own output
    "double": Op(lambda shapes, _: list(shapes), lambda inputs: [2 * x for x in inputs]),
    # (n, k) → (n,) sums
    "row_sums": Op(
        lambda shapes, _: [shapes[0][:1]], lambda inputs: [inputs[0].sum(axis=1, dtype=np.float32)]
    ),
    # x and a shape tensor → the sum of x in every element of that shape
    "fill": Op(_fill_shape, lambda inputs: [np.full(inputs[1], inputs[0].sum(), np.float32)]),
    # only the run could tell how many
    "nonzero": Op(
        lambda shapes, _: [(-1, len(shapes[0]))], lambda inputs: [np.argwhere(inputs[0])]
    ),
}
