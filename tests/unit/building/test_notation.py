"""Shapes in trtexec's notation: what is read, what is filled in, what is refused."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.building.notation import Bounds, parse_profiles, parse_shapes, written
from headrace.errors import ConfigError

# Names may hold colons and commas; only "name:1x2" within a name could be taken for an entry.
names = st.text(min_size=1).filter(lambda name: name[0] != "," and not re.search("[0-9]", name))
shapes = st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=8).map(tuple)


@given(st.dictionaries(names, shapes, min_size=1, max_size=4))
def test_what_is_written_is_read(entries: dict[str, tuple[int, ...]]) -> None:
    """Every shape of every input comes back, whatever characters the names have."""
    text = ",".join(f"{name}:{written(shape)}" for name, shape in entries.items())
    assert parse_shapes(text, flag="--min") == entries


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("x:1x3x224x224", {"x": (1, 3, 224, 224)}),
        ("a:1x2,b:8", {"a": (1, 2), "b": (8,)}),
        ("input:0:1x2,input:1:3", {"input:0": (1, 2), "input:1": (3,)}),  # TensorFlow's names
    ],
)
def test_the_notation_is_trtexecs(text: str, found: dict[str, tuple[int, ...]]) -> None:
    """Inputs are separated by commas, dimensions by x, a name from its shape by the last colon."""
    assert parse_shapes(text, flag="--min") == found


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", "found ''"),
        ("x", "found 'x'"),
        ("x:", "found 'x:'"),
        ("x:1x-1", "found 'x:1x-1'"),
        ("a:1,b:2y", "found 'b:2y'"),
        ("a:1,a:2", "names the input 'a' twice"),
        ("a:4294967296", "is more than 2147483647"),
    ],
)
def test_a_wrong_text_shows_where_it_is_wrong(text: str, shown: str) -> None:
    """The flag, the text and the part that cannot be read are in the error."""
    with pytest.raises(ConfigError) as caught:
        parse_shapes(text, flag="--opt")
    assert shown in str(caught.value)
    assert "--opt" in str(caught.value)


@pytest.mark.parametrize(
    ("given_", "expected"),
    [
        ((["x:1"], ["x:4"], ["x:8"]), Bounds((1,), (4,), (8,))),
        (([], ["x:4"], ["x:8"]), Bounds((4,), (4,), (8,))),
        ((["x:1"], [], ["x:8"]), Bounds((1,), (8,), (8,))),
        ((["x:1"], ["x:4"], []), Bounds((1,), (4,), (4,))),
        (([], [], ["x:8"]), Bounds((8,), (8,), (8,))),
        ((["x:1"], [], []), Bounds((1,), (1,), (1,))),
    ],
)
def test_what_is_left_out_follows_from_the_rest(
    given_: tuple[list[str], list[str], list[str]], expected: Bounds
) -> None:
    """The optimum is the maximum, the maximum the optimum, and the minimum the optimum."""
    assert parse_profiles(*given_) == ({"x": expected},)


@pytest.mark.parametrize(
    ("given_", "told"),
    [
        ((["x:1", "x:2"], ["x:4"], []), "--min 2, --opt 1 times; give all equally often"),
        ((["x:1"], ["x:4,y:4"], []), "profile 0: --min leaves out the input 'y'"),
        ((["x:5"], ["x:4"], []), "expected minimum <= optimum <= maximum"),
        (([], ["x:4"], ["x:3"]), "expected minimum <= optimum <= maximum"),
        (([], ["x:4"], ["x:4x4"]), "differ in the number of dimensions"),
    ],
)
def test_bounds_that_do_not_go_together_are_refused(
    given_: tuple[list[str], list[str], list[str]], told: str
) -> None:
    """TensorRT would take a minimum above the optimum in silence; this does not."""
    with pytest.raises(ConfigError) as caught:
        parse_profiles(*given_)
    assert told in str(caught.value)
