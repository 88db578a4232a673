"""The largest values of an output, as Triton's classification extension writes them: pure.

Each class is a text `value:index`, with `:label` behind it where the model has one; the largest
comes first. Values are written as C's `%f` and `%d` do. Of equal values the lower index comes
first, and what is no number comes last; Triton leaves both open.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from struct import Struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.engines.base import Shape
from headrace.errors import RequestError
from headrace_proto.datatypes import DATATYPES

UNORDERED = frozenset({"BOOL", "BYTES"})  # FP16 and BF16 work here, and not in Triton
MAX_ELEMENTS = 1_000_000  # of an output, as in Triton
MAX_CLASSES = 65_536
"""Of one reply. Each takes about half a microsecond of the thread that serves all others."""

_LENGTH = Struct("<I").pack


def top_classes(
    data: bytes | memoryview,
    datatype: str,
    shape: Shape,
    num_classes: int,
    *,
    has_rows: bool,
    labels: Sequence[str] = (),
) -> tuple[Shape, bytes]:
    """Return shape and content of the BYTES tensor that stands for an output.

    Args:
        data: The output, C order.
        datatype: Its datatype, none of UNORDERED.
        shape: Its shape.
        num_classes: How many are wanted of each row, at least 1; fewer when there are not so many.
        has_rows: The first dimension counts rows, each of which has its own classes.
        labels: Of the classes, in order of their index; an empty one is none.

    Raises:
        RequestError: There are more elements, or classes, than one reply may have.
    """
    *outer, rows = (shape[0], shape[0]) if has_rows and shape else (1,)
    width = prod(shape[len(outer) :])
    num_elements, count = prod(shape), min(num_classes, width)
    if num_elements > MAX_ELEMENTS or rows * count > MAX_CLASSES:
        raise RequestError(
            f"classification of {num_elements} elements into {rows * count} classes; the limits "
            f"are {MAX_ELEMENTS} and {MAX_CLASSES}: ask for fewer classes, or for the tensor"
        )
    parts: list[bytes] = []
    for row in _numbers(data, datatype).reshape(rows, width):
        indices = _largest(row, count)
        for value, index in zip(row[indices].tolist(), indices.tolist(), strict=True):
            text = f"{value:f}:{index}" if isinstance(value, float) else f"{value}:{index}"
            if index < len(labels) and labels[index]:
                text = f"{text}:{labels[index]}"
            raw = text.encode()
            parts += (_LENGTH(len(raw)), raw)
    return (*outer, count), b"".join(parts)


def _numbers(data: bytes | memoryview, datatype: str) -> NDArray[Any]:
    values: NDArray[Any] = np.frombuffer(data, DATATYPES[datatype].numpy)
    if datatype == "BF16":  # the upper half of an FP32
        return (values.astype(np.uint32) << 16).view(np.float32)
    return values


def _largest(row: NDArray[Any], count: int) -> NDArray[np.intp]:
    """Return the indices of the largest values, the largest first, of equal ones the lower."""
    if not count:
        return np.zeros(0, np.intp)
    order = -row if row.dtype.kind == "f" else ~row  # ascending, without an overflow
    if count < row.size:
        last = np.partition(order, count - 1)[count - 1]
        if last == last:  # a number; else all of them are sorted  # noqa: PLR0124
            among = np.flatnonzero(order <= last)
            return among[np.argsort(order[among], kind="stable")[:count]]
    return np.argsort(order, kind="stable")[:count]
