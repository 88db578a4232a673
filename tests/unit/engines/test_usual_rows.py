"""Which batch sizes are run before traffic comes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.engines.batching_spec import MAX_USUAL_ROWS, usual_rows


def test_what_matters_most_comes_first() -> None:
    """The ends, what is preferred, then doublings."""
    assert usual_rows(32, (6, 12)) == [1, 32, 6, 12, 2, 4, 8, 16]
    assert usual_rows(1) == [1]
    assert usual_rows(6) == [1, 6, 2, 4]


@given(st.integers(1, 1 << 20), st.lists(st.integers(-5, 1 << 21), max_size=40))
def test_they_are_few_and_fit(most: int, preferred: list[int]) -> None:
    """Whatever the configuration says."""
    rows = usual_rows(most, preferred)
    assert len(rows) == len(set(rows)) <= MAX_USUAL_ROWS
    assert {1, most} <= set(rows)
    assert all(1 <= each <= most for each in rows)
