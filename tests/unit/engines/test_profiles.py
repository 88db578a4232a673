"""Which optimization profile takes which shapes, held to a brute-force oracle."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.engines.profiles import (
    Profile,
    Range,
    check_values,
    choose,
    max_elements,
)
from headrace.errors import RequestError

Shape = tuple[int, ...]
MAX_DIMENSION = 4


@st.composite
def ranges(draw: st.DrawFn, name: str, rank: int) -> Range:
    bounds = [
        sorted(draw(st.lists(st.integers(0, MAX_DIMENSION), min_size=3, max_size=3)))
        for _ in range(rank)
    ]
    low, best, high = (tuple(bound[i] for bound in bounds) for i in range(3))
    return Range(name, low, best, high)


@st.composite
def profile_sets(draw: st.DrawFn) -> list[Profile]:
    ranks = draw(st.lists(st.integers(0, 2), min_size=1, max_size=2))
    return [
        Profile(index, tuple(draw(ranges(f"x{i}", rank)) for i, rank in enumerate(ranks)))
        for index in range(draw(st.integers(1, 3)))
    ]


def all_shapes(profile: Profile) -> list[Shape]:
    """Every shape that a one-input profile takes, by counting through them."""
    (only,) = profile.inputs
    return list(
        product(*(range(a, b + 1) for a, b in zip(only.minimum, only.maximum, strict=True)))
    )


def oracle(profiles: Sequence[Profile], shapes: Sequence[Shape]) -> int | None:
    """Index of the best profile, found without any code of the module under test."""
    best: tuple[int, int] | None = None
    for profile in profiles:
        total = 0
        for each, shape in zip(profile.inputs, shapes, strict=True):
            every = product(
                *(range(a, b + 1) for a, b in zip(each.minimum, each.maximum, strict=True))
            )
            if shape not in set(every):
                break
            for size, opt in zip(shape, each.optimum, strict=True):
                total += size - opt if size > opt else opt - size
        else:
            if best is None or total < best[0]:
                best = (total, profile.index)
    return None if best is None else best[1]


@given(st.data())
def test_choice_equals_brute_force(data: st.DataObject) -> None:
    """The nearest profile that takes the shapes is chosen; an error comes just where none does."""
    profiles = data.draw(profile_sets())
    sizes = st.integers(0, MAX_DIMENSION + 1)
    shapes = [
        tuple(data.draw(st.lists(sizes, min_size=len(each.minimum), max_size=len(each.minimum))))
        for each in profiles[0].inputs
    ]
    expected = oracle(profiles, shapes)
    if expected is None:
        with pytest.raises(RequestError):
            choose(profiles, shapes)
    else:
        assert choose(profiles, shapes).index == expected


@given(st.data())
def test_max_elements_equals_brute_force(data: st.DataObject) -> None:
    """No shape that any profile takes has more elements than the buffers are sized for."""
    rank = data.draw(st.integers(0, 3))
    profiles = [Profile(i, (data.draw(ranges("x", rank)),)) for i in range(3)]
    most = 0
    for profile in profiles:
        for shape in all_shapes(profile):
            count = 1
            for size in shape:
                count *= size
            most = max(most, count)
    assert max_elements(profiles) == (most,)


def batch(index: int, low: int, best: int, high: int) -> Profile:
    return Profile(index, (Range("x", (low, 4), (best, 4), (high, 4)),))


def test_wrong_rank_and_range_name_input_shape_and_allowed() -> None:
    """The error text names the input, what came, every allowed range and how to mend it."""
    profiles = [batch(0, 1, 4, 8), batch(1, 8, 16, 32)]
    for shape in [(33, 4), (0, 4), (4,), (4, 4, 1), (4, 5), (-1, 4)]:
        with pytest.raises(RequestError) as caught:
            choose(profiles, [shape])
        text = str(caught.value)
        assert f"input 'x' has shape {list(shape)}" in text
        assert "expected [1..8, 4] or [8..32, 4]" in text
        assert "send a shape in that range" in text


def test_equal_distance_takes_the_first_profile() -> None:
    """Of two profiles that are equally near, the first is taken, as Triton does."""
    assert choose([batch(0, 1, 4, 8), batch(1, 1, 6, 8)], [(5, 4)]).index == 0
    assert choose([batch(3, 1, 6, 8), batch(1, 1, 4, 8)], [(5, 4)]).index == 3


def test_shapes_that_only_fit_apart_are_told_together() -> None:
    """Where each input fits some profile but no profile takes both, the text shows the pairs."""
    first = Profile(0, (Range("a", (1,), (1,), (4,)), Range("b", (1,), (1,), (4,))))
    second = Profile(1, (Range("a", (5,), (5,), (8,)), Range("b", (5,), (5,), (8,))))
    with pytest.raises(RequestError, match="together") as caught:
        choose([first, second], [(2,), (6,)])
    text = str(caught.value)
    assert "a [2], b [6]" in text
    assert "a [1..4], b [1..4]; or a [5..8], b [5..8]" in text


def test_long_lists_of_profiles_are_cut() -> None:
    """A plan with many profiles does not make a text of many lines."""
    profiles = [batch(i, 10 * i + 1, 10 * i + 2, 10 * i + 3) for i in range(40)]
    with pytest.raises(RequestError, match=r"\(and 36 more\)"):
        choose(profiles, [(1000, 4)])


def test_wrong_number_of_inputs() -> None:
    """More or fewer shapes than inputs is the caller's fault, told by number."""
    with pytest.raises(RequestError, match="2 inputs came, expected 1"):
        choose([batch(0, 1, 4, 8)], [(1, 4), (1, 4)])


def test_values_of_shape_tensors_have_ranges_too() -> None:
    """Values outside the profile are refused by name before they reach the engine."""
    profile = Profile(0, (), values=(Range("size", (1, 1), (224, 224), (512, 512)),))
    check_values(profile, [(512, 1)])
    with pytest.raises(RequestError, match=r"'size' has the values \[513, 1\].*\[1..512, 1..512\]"):
        check_values(profile, [(513, 1)])


def test_max_rows_is_what_all_inputs_take() -> None:
    """The most rows of a batch is bounded by the tightest input; shape tensors have no rows."""
    a, b = Range("a", (1,), (1,), (64,)), Range("b", (1, 2), (1, 2), (16, 2))
    assert Profile(0, (a, b)).max_rows == 16
    size, values = Range("size", (2,), (2,), (2,)), Range("size", (1, 1), (8, 8), (9, 9))
    assert Profile(0, (a, b, size), (values,)).max_rows == 16
    assert Profile(0, (a, Range("scalar", (), (), ()))).max_rows == 0
    assert Profile(0, ()).max_rows == 0
