"""Where tensors lie in a block, and how a call is laid out to run as one of more rows."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.device.base import ALIGNMENT_BYTES
from headrace.engines.base import Layout, Shape
from headrace.engines.layout import can_batch, num_rows, pad_layout, plan_layout

ITEM_BYTES = 4
RESTS = st.lists(st.lists(st.integers(0, 40), max_size=3).map(tuple), min_size=1, max_size=4)


def layout(inputs: list[Shape], outputs: list[Shape] | None) -> Layout:
    """Lay out tensors of four bytes an element."""
    return plan_layout(
        inputs,
        [prod(shape) * ITEM_BYTES for shape in inputs],
        outputs,
        [prod(shape) * ITEM_BYTES for shape in outputs or []],
    )


def of_rows(rows: int, inputs: list[Shape], outputs: list[Shape]) -> Layout:
    """Lay out tensors of so many rows."""
    return layout([(rows, *rest) for rest in inputs], [(rows, *rest) for rest in outputs])


@given(RESTS, RESTS, st.integers(0, 9))
def test_tensors_are_aligned_and_apart(
    inputs: list[Shape], outputs: list[Shape], rows: int
) -> None:
    """Inputs first, then outputs, none over another, all within the size."""
    made = of_rows(rows, inputs, outputs)
    places = [
        *zip(made.input_offsets, made.input_sizes, strict=True),
        *zip(made.output_offsets, made.output_sizes, strict=True),
    ]
    assert all(offset % ALIGNMENT_BYTES == 0 for offset, _ in places)
    ends = [offset + size for offset, size in places]
    assert all(end <= offset for end, (offset, _) in zip(ends, places[1:], strict=False))
    assert made.size_bytes == max(ends)
    assert ends[len(inputs) - 1] <= made.inputs_end <= made.outputs_start


@given(RESTS, RESTS, st.integers(0, 9), st.integers(0, 9))
def test_a_padded_call_begins_where_the_larger_one_does(
    inputs: list[Shape], outputs: list[Shape], rows: int, more: int
) -> None:
    """Offsets are the target's, shapes and sizes the call's own, and nothing reaches over."""
    own, target = of_rows(rows, inputs, outputs), of_rows(rows + more, inputs, outputs)
    padded = pad_layout(own, target)
    assert padded is not None
    assert padded.runs_as is target
    assert (padded.input_offsets, padded.output_offsets) == (
        target.input_offsets,
        target.output_offsets,
    )
    assert (padded.input_shapes, padded.output_shapes) == (own.input_shapes, own.output_shapes)
    assert (padded.input_sizes, padded.output_sizes) == (own.input_sizes, own.output_sizes)
    assert padded.size_bytes == target.size_bytes
    assert own.runs_as is own


TARGET = layout([(8, 4), (8,)], [(8, 3)])


@pytest.mark.parametrize(
    "own",
    [
        layout([(9, 4), (9,)], [(9, 3)]),  # more rows
        layout([(5, 4), (5,)], [(5, 2)]),  # another width
        layout([(5, 4), (4,)], [(5, 3)]),  # rows that differ
        layout([(5, 4), (5,)], [(1, 3)]),  # an output that has no rows
        layout([(5, 4), ()], [(5, 3)]),  # a scalar
        layout([(5, 4)], [(5, 3)]),  # another model's
        layout([(5, 4), (5,)], None),  # outputs that only the run can tell
        replace(layout([(5, 4), (5,)], [(5, 3)]), values=(b"12345678",)),  # shape tensors
    ],
)
def test_what_differs_in_more_than_rows_is_not_padded(own: Layout) -> None:
    """The outputs would not be those of the call."""
    assert pad_layout(own, TARGET) is None
    assert not can_batch(own, TARGET)
    assert pad_layout(layout([(5, 4), (5,)], [(5, 3)]), TARGET) is not None


def test_calls_of_any_rows_can_run_together() -> None:
    """As many rows, fewer and none at all; a wider one of shape tensors cannot be compared with."""
    assert all(
        can_batch(layout([(rows, 4), (rows,)], [(rows, 3)]), TARGET) for rows in (0, 1, 7, 8)
    )
    assert not can_batch(TARGET, replace(TARGET, values=(b"12345678",)))


def test_one_row_may_hide_an_output_without_rows() -> None:
    """A first dimension of 1 looks like a row; the wider call shows that it is none."""
    one, eight = layout([(1, 4)], [(1, 3)]), layout([(8, 4)], [(1, 3)])
    assert (num_rows(one), num_rows(eight)) == (1, None)
    assert not can_batch(one, eight)
