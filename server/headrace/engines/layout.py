"""Lays the tensors of one call out in a block: pure arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from headrace.device.base import ALIGNMENT_BYTES
from headrace.engines.base import Layout, Shape


def aligned(size_bytes: int) -> int:
    """Round up to the next multiple of `ALIGNMENT_BYTES`."""
    return -(-size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def plan_layout(
    input_shapes: Sequence[Shape],
    input_sizes: Sequence[int],
    output_shapes: Sequence[Shape] | None,
    output_sizes: Sequence[int],
    values: Sequence[bytes] = (),
) -> Layout:
    """Place inputs, then outputs, one behind the other, each aligned.

    Args:
        input_shapes: Shapes as the engine sees them.
        input_sizes: Bytes of each input; for BYTES tensors the bytes of this very request.
        output_shapes: Shapes of the outputs, None when only the run can tell.
        output_sizes: Bytes of each output; empty when `output_shapes` is None.
        values: Of the shape tensors, under which the outputs have these shapes.
    """
    input_offsets, inputs_end, at = _place(input_sizes, 0)
    outputs_start = at
    output_offsets, outputs_end, _ = _place(output_sizes, at)
    return Layout(
        input_shapes=tuple(input_shapes),
        input_sizes=tuple(input_sizes),
        input_offsets=input_offsets,
        output_shapes=None if output_shapes is None else tuple(output_shapes),
        output_sizes=tuple(output_sizes),
        output_offsets=output_offsets,
        inputs_end=inputs_end,
        outputs_start=outputs_start,
        size_bytes=max(inputs_end, outputs_end),
        values=tuple(values),
    )


def num_rows(layout: Layout) -> int | None:
    """Return the rows of a call: the first dimension of every input and output.

    Returns:
        None where that is not one number, or outputs are known only after the run.
    """
    if layout.output_shapes is None:
        return None
    shapes = layout.input_shapes + layout.output_shapes
    if not shapes or not all(shapes):
        return None
    rows = {shape[0] for shape in shapes}
    return rows.pop() if len(rows) == 1 else None


def can_batch(layout: Layout, wider: Layout) -> bool:
    """Say whether a call differs from one of as many or more rows in its number of rows alone.

    Only such calls can run together. One layout cannot tell: a first dimension that is 1 in a call
    of one row may be 1 in every call, so it takes two of one model.

    Args:
        layout: Of the call.
        wider: Of a call with more rows, best with the most that a batch may have.
    """
    rows, more_rows = num_rows(layout), num_rows(wider)
    if rows is None or more_rows is None or rows > more_rows or layout.values or wider.values:
        return False
    assert layout.output_shapes is not None
    assert wider.output_shapes is not None
    shapes = layout.input_shapes + layout.output_shapes
    wider_shapes = wider.input_shapes + wider.output_shapes
    return [shape[1:] for shape in shapes] == [shape[1:] for shape in wider_shapes]


def pad_layout(layout: Layout, target: Layout) -> Layout | None:
    """Lay a call out so that it can be run as one of more rows.

    Its tensors begin where those of the target do, and so end before them: what lies between is
    padding. That works where the rows are the first dimension of every input and output.

    Args:
        layout: Of the call.
        target: What shall be run; of the same model.

    Returns:
        The call's layout for that, None when it differs in more than the number of rows.
    """
    if not can_batch(layout, target):
        return None
    return replace(
        layout,
        input_offsets=target.input_offsets,
        output_offsets=target.output_offsets,
        inputs_end=target.inputs_end,
        outputs_start=target.outputs_start,
        size_bytes=target.size_bytes,
        padded_to=target,
    )


def _place(sizes: Sequence[int], at: int) -> tuple[tuple[int, ...], int, int]:
    """Return (offsets, end of the last tensor, next aligned offset)."""
    offsets: list[int] = []
    end = at
    for size in sizes:
        offsets.append(at)
        end = at + size
        at = aligned(end)
    return tuple(offsets), end, at


def num_elements(shape: Shape) -> int:
    """Return the number of elements of a shape; 1 for a scalar."""
    return prod(shape)
