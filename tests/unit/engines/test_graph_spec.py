"""Which graphs a configuration asks for: shapes of every input, and what is padded to them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.engines.base import TensorSpec
from headrace.engines.batching_spec import MAX_USUAL_ROWS
from headrace.engines.graph_spec import (
    usual_graphs,
    wanted_graphs,
    wants_graphs,
)
from headrace.errors import ConfigError
from helpers.model_repository import config_of

INPUTS = (
    TensorSpec("image", "UINT8", (None, None, None, 3)),
    TensorSpec("scale", "FP32", (None, 2)),
    TensorSpec("size", "INT32", (2,), is_shape_tensor=True),
)
IMAGE = 'input { key: "image" value { dim: [ 480, 640, 3 ] } }'


def wanted(spec: str, max_batch_size: int = 8) -> list[tuple[object, int]]:
    """Return shapes and least rows of each graph."""
    text = f"max_batch_size: {max_batch_size} optimization {{ cuda {{ {spec} }} }}"
    return [(each.shapes, each.least_rows) for each in wanted_graphs(config_of(text), INPUTS)]


def test_what_is_written_goes_before_the_default() -> None:
    """As in Triton nothing is on by itself; where the server's default is on, it can be put off."""
    for default in (False, True):
        assert wants_graphs(config_of("max_batch_size: 8"), default=default) is default
        assert not wants_graphs(
            config_of("optimization { cuda { graphs: false } }"), default=default
        )
        assert wants_graphs(config_of("optimization { cuda { graphs: true } }"), default=default)
    assert not wants_graphs(config_of(""))
    assert not wants_graphs(config_of("optimization { cuda { } }"))
    assert wants_graphs(config_of("optimization { cuda { graphs: true } }"))


def test_fixed_dims_need_not_be_named() -> None:
    """The batch size is the first dimension of all but shape tensors."""
    shapes = ((4, 480, 640, 3), (4, 2), (2,))
    assert wanted(f"graph_spec {{ batch_size: 4 {IMAGE} }}") == [(shapes, 0)]


def test_several_in_order_with_their_bounds() -> None:
    """A lower bound of rows holds for its own graph."""
    specs = (
        f"graph_spec {{ batch_size: 2 {IMAGE} graph_lower_bound {{ batch_size: 1 }} }}"
        f"graph_spec {{ batch_size: 8 {IMAGE} }}"
    )
    assert [(shapes[0][0], least) for shapes, least in wanted(specs)] == [(2, 1), (8, 0)]  # type: ignore[index]


def test_without_a_batch_dimension_the_dims_are_the_shape() -> None:
    """The batch size is 0 then, and there is nothing to pad."""
    config = config_of(
        'optimization { cuda { graph_spec { input { key: "x" value { dim: [ 5, 3 ] } } '
        "graph_lower_bound { batch_size: 1 } } } }"
    )
    (graph,) = wanted_graphs(config, [TensorSpec("x", "FP32", (None, 3))])
    assert (graph.shapes, graph.least_rows) == (((5, 3),), 0)


def usual(text: str, shape: tuple[int | None, ...] = (None, 3)) -> list[tuple[int, int]]:
    """Return rows and least rows of each graph, by rising rows."""
    graphs = usual_graphs(config_of(text), [TensorSpec("x", "FP32", shape)])
    assert all(each.is_usual and each.shapes[0][1:] == shape[1:] for each in graphs)
    return [(each.shapes[0][0], each.least_rows) for each in reversed(graphs)]


def test_usual_graphs_double_and_take_in_what_is_preferred() -> None:
    """The most rows have one, too."""
    assert usual("max_batch_size: 8") == [(1, 1), (2, 2), (4, 3), (8, 5)]
    preferred = "dynamic_batching { preferred_batch_size: [ 6 ] }"
    assert usual(f"max_batch_size: 7 {preferred}") == [(1, 1), (2, 2), (4, 3), (6, 5), (7, 7)]


@given(most=st.integers(2, 5000), preferred=st.lists(st.integers(1, 5000), max_size=30))
def test_every_number_of_rows_is_padded_to_one_usual_graph(most: int, preferred: list[int]) -> None:
    """However many sizes are preferred, there are few graphs."""
    sizes = f"dynamic_batching {{ preferred_batch_size: {preferred} }}" if preferred else ""
    graphs = usual(f"max_batch_size: {most} {sizes}")
    taken = [rows for size, least in graphs for rows in range(least, size + 1)]
    assert taken == list(range(1, most + 1))
    assert len(graphs) <= MAX_USUAL_ROWS


@pytest.mark.parametrize(
    ("text", "shape"),
    [("max_batch_size: 1", (None, 3)), ("", (None, 3)), ("max_batch_size: 8", (None, None))],
)
def test_without_batches_of_one_shape_nothing_is_usual(
    text: str, shape: tuple[int | None, ...]
) -> None:
    """Which shapes clients bring is not known."""
    assert usual(text, shape) == []


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        (f"batch_size: 9 {IMAGE}", r"\[0\].batch_size: is 9, expected 1 to 8"),
        (IMAGE, "is 0, expected 1 to 8"),
        ("batch_size: 1", r"needs the shape of input 'image', whose dims \[-1, -1, 3\]"),
        (f'batch_size: 1 {IMAGE} input {{ key: "b" value {{ }} }}', "there is no input 'b'"),
        (
            'batch_size: 1 input { key: "image" value { dim: [ 480, 640, 4 ] } }',
            r"the dims \[480, 640, 4\], expected \[-1, -1, 3\]",
        ),
        (
            'batch_size: 1 input { key: "image" value { dim: [ 480, -1, 3 ] } }',
            r"the dims \[480, -1, 3\], expected",
        ),
        (
            f"batch_size: 4 {IMAGE} graph_lower_bound {{ batch_size: 5 }}",
            "graph_lower_bound.batch_size: is 5, expected 1 to 4",
        ),
        (f"batch_size: 4 {IMAGE} graph_lower_bound {{ }}", "is 0, expected 1 to 4"),
    ],
)
def test_what_does_not_fit_the_model_is_named(spec: str, why: str) -> None:
    """The field, what came and what was expected."""
    with pytest.raises(ConfigError, match=why):
        wanted(f"graph_spec {{ {spec} }}")


def test_without_a_batch_dimension_there_is_no_batch_size() -> None:
    """Triton says so, too."""
    with pytest.raises(ConfigError, match="is 1, expected 0, as max_batch_size is 0"):
        wanted("graph_spec { batch_size: 1 }", max_batch_size=0)
