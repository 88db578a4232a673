"""What is known of a batch's duration by its rows, from samples written by hand."""

from __future__ import annotations

from itertools import pairwise
from math import inf, nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.slots.capacity import FORGET_AFTER, MAX_SIZES, Capacity


def steady(fixed_s: float, row_s: float, sizes: list[int], times: int = 80) -> Capacity:
    """Return what is known after many runs that took `fixed_s + row_s * rows` exactly."""
    capacity = Capacity()
    for _ in range(times):
        for rows in sizes:
            capacity.learn(rows, fixed_s + row_s * rows)
    return capacity


def test_nothing_is_known_at_first() -> None:
    """Every answer says so, and the largest batch is as good as any."""
    capacity = Capacity()
    assert (capacity.mean_s(3), capacity.most_s(3), capacity.least_s(3)) == (0.0, 0.0, 0.0)
    assert capacity.table() == []
    assert capacity.best_rows(16) == 16


@pytest.mark.parametrize("took_s", [nan, inf, 0.0, -1.0])
def test_what_is_no_duration_teaches_nothing(took_s: float) -> None:
    """A lane without marks, or a clock that was set, must not spoil the table."""
    capacity = Capacity()
    capacity.learn(4, took_s)
    assert capacity.table() == []


def test_sizes_between_and_beyond_lie_on_the_line() -> None:
    """Numpy's own interpolation agrees in between; beyond, the two last sizes go on."""
    capacity = steady(0.002, 0.0005, [1, 4, 16])
    for rows in range(1, 17):
        known = [0.0025, 0.004, 0.010]
        expected_s = np.interp(rows, [1, 4, 16], known)
        assert capacity.mean_s(rows) == pytest.approx(expected_s)
    assert capacity.mean_s(32) == pytest.approx(0.018)
    assert capacity.most_s(32) == pytest.approx(0.018)
    assert capacity.least_s(32) == pytest.approx(0.018)
    assert steady(0.002, 0.0005, [4, 16]).mean_s(1) == pytest.approx(0.0025)


def test_one_size_bounds_the_others() -> None:
    """More rows take at most in proportion; fewer may take as long."""
    capacity = steady(0.0, 0.001, [8])
    assert capacity.mean_s(16) == pytest.approx(0.016)
    assert capacity.mean_s(1) == pytest.approx(0.008)


@pytest.mark.parametrize(
    ("first_s", "second_s", "rows", "expected_s"),
    [
        (0.010, 0.002, 16, 0.002),  # a falling line ends at the last size seen
        (0.010, 0.040, 16, 0.080),  # a steep one in proportion to it
        (0.010, 0.040, 1, 0.005),  # and in front of the first in proportion, too
    ],
)
def test_no_line_leaves_what_a_run_can_take(
    first_s: float, second_s: float, rows: int, expected_s: float
) -> None:
    """Two noisy sizes say nothing of one far away."""
    capacity = Capacity()
    for _ in range(100):
        capacity.learn(2, first_s)
        capacity.learn(8, second_s)
    assert capacity.mean_s(rows) == pytest.approx(expected_s, rel=1e-2)


def test_a_new_size_starts_from_its_neighbours() -> None:
    """Its one run says what it takes, and the next sizes' spread how certain that is."""
    capacity = steady(0.002, 0.0005, [1, 16])
    capacity.learn(8, 0.005)
    assert capacity.mean_s(8) == 0.005
    assert capacity.most_s(8) == pytest.approx(0.005, rel=1e-2)
    capacity.learn(4, 1.0)
    assert capacity.mean_s(4) < 0.02, "its first run was a pause"


def test_one_pause_is_no_trend() -> None:
    """A run of a second among runs of 10 ms must not stop the model from being used."""
    capacity = steady(0.010, 0.0, [8])
    capacity.learn(8, 1.0)
    assert capacity.mean_s(8) < 0.015
    assert capacity.most_s(8) < 0.035


def test_a_lasting_change_is_learnt() -> None:
    """The clamp on one run does not hold on to the past."""
    capacity = steady(0.010, 0.0, [8])
    for _ in range(80):
        capacity.learn(8, 1.0)
    assert capacity.mean_s(8) == pytest.approx(1.0, rel=1e-2)


def test_the_best_size_has_the_most_rows_per_second_in_time() -> None:
    """It grows with the time that there is, and is 0 when nothing is quick enough."""
    capacity = steady(0.004, 0.001, [1, 2, 4, 8, 16])
    assert capacity.best_rows(16) == 16
    assert capacity.best_rows(16, 0.013) == 8
    assert capacity.best_rows(6, 0.013) == 6
    assert capacity.best_rows(16, 0.001) == 0
    dear = steady(0.0, 0.001, [1, 4, 8])  # nothing is gained by more rows
    assert dear.best_rows(8) in {1, 4, 8}


def test_only_so_many_sizes_are_told_apart() -> None:
    """A client that sends every size there is takes no more memory; its runs teach all the same."""
    capacity = steady(0.001, 0.0001, list(range(1, 2 * MAX_SIZES)), times=3)
    assert len(capacity.table()) == MAX_SIZES
    for _ in range(80):
        capacity.learn(2 * MAX_SIZES, 1.0)
    assert capacity.mean_s(2 * MAX_SIZES) > 0.9


def test_batches_at_work_together_slow_each_other_down() -> None:
    """By a factor of their number, whatever their size; what one takes alone is left as it was."""
    capacity = steady(0.002, 0.0005, [1, 4, 16])
    for _ in range(60):
        capacity.learn(4, 2 * 0.004, together=2)
        capacity.learn(16, 2 * 0.010, together=2)
    assert capacity.mean_s(4) == pytest.approx(0.004)
    assert capacity.mean_s(1, 2) == pytest.approx(2 * 0.0025)
    assert capacity.most_s(8, 2) == pytest.approx(2 * 0.006, rel=1e-2)
    assert capacity.mean_s(4, 3) > capacity.mean_s(4, 2), "not seen yet, and hardly free"


def test_nobody_can_tell_how_many_were_at_work() -> None:
    """Then a run teaches nothing."""
    capacity = steady(0.002, 0.0005, [1, 4, 16])
    capacity.learn(4, 1.0, together=0)
    assert capacity.mean_s(4) == pytest.approx(0.004)


def test_what_more_together_do_is_forgotten_in_time() -> None:
    """What made it useless may have gone; it is not forgotten while it is seen."""
    capacity = steady(0.002, 0.0005, [1])
    assert capacity.has_seen(1)
    assert not capacity.has_seen(2)
    for _ in range(2 * FORGET_AFTER):
        capacity.learn(1, 2 * 0.0025, together=2)
        capacity.learn(1, 0.0025)
    assert capacity.has_seen(2)
    for _ in range(FORGET_AFTER):
        capacity.learn(1, 0.0025)
    assert not capacity.has_seen(2)


def test_what_is_not_tried_for_what_is_known_is_trusted_ever_less() -> None:
    """Or a model whose runs were slow once would never run again."""
    capacity = steady(1.0, 0.0, [4])
    assert capacity.least_s(4) > 0.9
    for _ in range(20):
        capacity.doubt(1)
    assert capacity.least_s(4) == 0.0
    assert capacity.mean_s(4) == pytest.approx(1.0)
    Capacity().doubt(1)


@given(
    st.lists(st.tuples(st.integers(1, 64), st.floats(1e-6, 10.0)), min_size=1, max_size=60),
    st.integers(1, 200),
    st.floats(1e-6, 10.0),
)
def test_answers_stay_in_order_and_among_what_was_seen(
    samples: list[tuple[int, float]], rows: int, within_s: float
) -> None:
    """Least, mean and most never cross; a size that was seen is never outside of its neighbours."""
    capacity = Capacity()
    for size, took_s in samples:
        capacity.learn(size, took_s)
    slack = 1 + 1e-9
    assert 0.0 <= capacity.least_s(rows) <= capacity.mean_s(rows) * slack
    assert 0.0 < capacity.mean_s(rows) <= capacity.most_s(rows) * slack
    table = capacity.table()
    assert [size for size, _ in table] == sorted({size for size, _ in samples})
    for (low, low_s), (high, high_s) in pairwise(table):
        middle_s = capacity.mean_s((low + high) // 2)
        assert min(low_s, high_s) / slack <= middle_s <= max(low_s, high_s) * slack
    best = capacity.best_rows(64, within_s)
    assert best == 0 or capacity.most_s(best) <= within_s
