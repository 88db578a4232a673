"""Which calls share a batch, and how the batch is laid out."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from headrace.engines.base import Layout, Shape
from headrace.engines.kinds import MAX_KINDS, Kinds
from headrace.errors import RequestError
from helpers.model_repository import signature_of
from helpers.served import ShapeEngine, ShapesOf

ITEM_BYTES = 4


class Profiled(ShapeEngine):
    """An engine with two optimization profiles: 1 to 4 rows, and 8 to 16 of at most 10 columns."""

    profile_rows: tuple[int, ...] = (4, 16)

    def check_inputs(self, shapes: Sequence[Shape]) -> None:
        """Refuse what lies between them."""
        rows, columns = shapes[0]
        if not (1 <= rows <= 4 or (8 <= rows <= 16 and columns <= 10)):
            raise RequestError(f"no profile takes {rows} rows")


def double(shapes: Sequence[Shape]) -> tuple[Shape, ...]:
    """An output of as many rows and twice as many columns."""
    return ((shapes[0][0], 2 * shapes[0][1]),)


def engine(inputs: str = "x FP32[?,?]", shapes_of: ShapesOf = double) -> ShapeEngine:
    return ShapeEngine(signature_of(inputs, "y FP32[?,?]"), shapes_of)


def lay_out(kinds: Kinds, *shapes: Shape) -> Layout:
    sizes = [ITEM_BYTES * rows * columns for rows, columns in shapes]
    return kinds.lay_out(shapes, sizes)


def test_calls_that_differ_in_rows_are_of_one_kind() -> None:
    """And a batch of so many rows is laid out as a call of so many."""
    kinds = Kinds(engine(), 8)
    one, three, other = (lay_out(kinds, shape) for shape in ((1, 5), (3, 5), (3, 6)))
    assert one.kind is not None
    assert one.kind is three.kind
    assert other.kind is not one.kind
    assert one.kind.layout(3) is three
    assert one.kind.max_rows == 8
    assert (three.input_sizes, three.output_shapes) == ((60,), ((3, 10),))


@pytest.mark.parametrize(
    "kinds",
    [
        Kinds(engine(), 1),
        Kinds(engine(shapes_of=lambda _: None), 8),
        Kinds(engine(shapes_of=lambda shapes: ((1, shapes[0][0]),)), 8),
        Kinds(engine(shapes_of=lambda shapes: ((shapes[0][0], shapes[0][0]),)), 8),
        Kinds(engine("!x INT32[2]"), 8),
        Kinds(engine("x BYTES[?,?]"), 8),
    ],
    ids=["no batches", "shapes after the run", "no rows", "rows twice", "shape tensor", "text"],
)
def test_what_cannot_share_a_batch_has_no_kind(kinds: Kinds) -> None:
    """It would get another's rows, or nobody knows where its outputs lie."""
    for rows in (1, 2):
        assert lay_out(kinds, (rows, 2)).kind is None


def test_inputs_of_different_rows_have_no_kind() -> None:
    """What is no batch dimension in one input is none in the call."""
    kinds = Kinds(engine("x FP32[?,?] w FP32[?,?]", lambda shapes: (shapes[0],)), 8)
    assert lay_out(kinds, (2, 3), (2, 7)).kind is not None
    assert lay_out(kinds, (1, 3), (5, 7)).kind is None


def test_a_kind_knows_the_most_that_the_engine_takes_of_it() -> None:
    """The profile that takes most rows may not take these columns."""
    kinds = Kinds(Profiled(engine().signature, double), 12)
    small, wide = lay_out(kinds, (1, 10)).kind, lay_out(kinds, (2, 99)).kind
    assert small is not None
    assert wide is not None
    assert (small.max_rows, wide.max_rows) == (12, 4)


def test_rows_that_no_profile_takes_run_as_more() -> None:
    """The call's own rows stand first, at the places of the wider one's."""
    kind = lay_out(Kinds(Profiled(engine().signature, double), 12), (1, 10)).kind
    assert kind is not None
    for rows in range(1, 13):
        layout = kind.layout(rows)
        runs = layout.runs_as
        assert runs.input_shapes == (((8 if 4 < rows < 8 else rows), 10),)
        assert (runs is layout) == (rows not in {5, 6, 7})
        assert layout.input_sizes == (rows * 10 * ITEM_BYTES,)
        assert layout.output_shapes == ((rows, 20),)
        assert layout.output_sizes == (rows * 20 * ITEM_BYTES,)
        assert layout.output_offsets == runs.output_offsets


def test_batches_are_padded_to_graphs_and_requests_are_not() -> None:
    """To the smallest that takes so few; a request needs no block for rows that it has not."""
    kinds = Kinds(engine(), 16)
    four, eight, sixteen = (lay_out(kinds, (rows, 5)) for rows in (4, 8, 16))
    kind = four.kind
    assert kind is not None
    assert kind.layout(3).padded_to is None
    for _ in range(2):
        kinds.settle([four, eight, sixteen], {four: 2, eight: 6, sixteen: 0})
    runs = {rows: kind.layout(rows).runs_as.input_shapes[0][0] for rows in range(1, 17)}
    assert [rows for rows in runs if runs[rows] != rows] == [2, 3, 6, 7]
    assert kind.layout(3).padded_to is four
    assert kind.layout(4) is four
    assert lay_out(kinds, (3, 5)).padded_to is None


def test_kinds_are_bounded_and_those_of_load_stay() -> None:
    """Clients choose the shapes; graphs are kept by the layouts that were captured."""
    kinds = Kinds(engine(), 4)
    warm = lay_out(kinds, (4, 1))
    kinds.settle([warm], {})
    passing = lay_out(kinds, (4, 2))
    for columns in range(3, 3 + MAX_KINDS):
        lay_out(kinds, (1, columns))
    assert lay_out(kinds, (4, 1)) is warm
    assert lay_out(kinds, (4, 2)) is not passing
    assert lay_out(kinds, (1, MAX_KINDS + 2)) is lay_out(kinds, (1, MAX_KINDS + 2))
