"""How much of the copies is hidden, on hand-made spans and against counting by grid."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.timeline.overlap import Interval, Span, common_s, merged, overlap, total_s

TICKS = 40
Ticks = list[tuple[int, int]]
ticks = st.lists(
    st.tuples(st.integers(0, TICKS), st.integers(0, TICKS)).map(
        lambda pair: (min(pair), max(pair))
    ),
    max_size=12,
)


def grid(intervals: Ticks) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which whole ticks the intervals cover."""
    covered = np.zeros(TICKS, dtype=np.bool_)
    for start, end in intervals:
        covered[start:end] = True
    return covered


@given(ticks)
def test_merged_covers_the_same_time(intervals: Ticks) -> None:
    """Nothing is lost, nothing overlaps, nothing is empty, all is in order."""
    result: list[Interval] = merged(intervals)
    assert (grid([(int(a), int(b)) for a, b in result]) == grid(intervals)).all()
    assert all(start < end for start, end in result)
    assert all(result[i][1] < result[i + 1][0] for i in range(len(result) - 1))
    assert total_s(intervals) == grid(intervals).sum()


@given(ticks, ticks)
def test_common_is_what_both_cover(one: Ticks, other: Ticks) -> None:
    """Counted tick by tick it is the same."""
    assert common_s(merged(one), merged(other)) == (grid(one) & grid(other)).sum()


@given(ticks, ticks, ticks)
def test_hidden_is_never_more_than_there_is(a: Ticks, b: Ticks, copies: Ticks) -> None:
    """Copies of slot a are hidden by what b computes, and by nothing of a's own."""
    spans = [Span("a", "execute", *each) for each in a]
    spans += [Span("b", "execute", *each) for each in b]
    spans += [Span("a", "h2d", *each) for each in copies]
    found = overlap(spans)
    assert found.copy_s == grid(copies).sum()
    assert found.hidden_s == (grid(copies) & grid(b)).sum()
    assert found.compute_s == grid(a + b).sum()


@pytest.mark.parametrize(
    ("spans", "share"),
    [
        ([], None),
        ([Span("a", "execute", 0, 9)], None),
        ([Span("a", "h2d", 0, 1), Span("a", "execute", 1, 9), Span("a", "d2h", 9, 10)], 0.0),
        ([Span("a", "h2d", 0, 2), Span("b", "execute", 1, 9)], 0.5),
        ([Span("a", "h2d", 2, 3), Span("a", "d2h", 5, 6), Span("b", "execute", 1, 9)], 1.0),
        ([Span("a", "h2d", 2, 4), Span("b", "d2h", 2, 4), Span("b", "execute", 0, 3)], 0.25),
    ],
    ids=["nothing", "no copies", "one slot", "half", "all", "one of two slots"],
)
def test_share_of_hidden_copies(spans: list[Span], share: float | None) -> None:
    """Only another slot's compute hides a copy."""
    assert overlap(spans).hidden_share == share
