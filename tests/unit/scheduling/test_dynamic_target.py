"""A latency target: when a batch waits, how large it is, and who is let go."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.engines.batching_spec import BatchingSpec
from headrace.scheduling.arrivals import ArrivalRate, Onset
from headrace.scheduling.dynamic import LEAD_S
from headrace.scheduling.sizing import NEARLY, Sizing
from headrace.slots.capacity import Capacity
from helpers.queue_rig import Queue, known

TARGET_S = 0.020
FIXED_S, ROW_S = 0.004, 0.001  # of a batch: eight rows in 12 ms
SIZES = (1, 2, 4, 8)


def takes_s(rows: int) -> float:
    """Return what a batch takes alone."""
    return FIXED_S + ROW_S * rows


def aimed(capacity: Capacity | None = None, **fields: object) -> Queue:
    """Return a queue that aims at the target."""
    spec = BatchingSpec(max_rows=8, target_p99_s=TARGET_S, **fields)  # type: ignore[arg-type]
    return Queue(spec, capacity or known([(rows, takes_s(rows)) for rows in SIZES]))


def crowded(slowdown: float) -> Capacity:
    """Return what is known where two at work slow each other down so much."""
    capacity = known([(rows, takes_s(rows)) for rows in SIZES])
    for _ in range(40):
        capacity.learn(8, slowdown * takes_s(8), together=2)
    return capacity


def test_an_idle_device_waits_for_nobody() -> None:
    """However well a larger batch would do, where two of them fit into the target."""
    waits = aimed()
    asked = waits.add()
    assert waits.next() == [asked]


def test_a_device_waits_where_nobody_would_be_in_time_behind_the_batch() -> None:
    """Who came just after it began would wait for two: rather all of them share one."""
    took_s = 0.6 * TARGET_S
    waits = aimed(known([(rows, took_s) for rows in SIZES]))
    asked = [waits.add()]
    assert waits.next() == []
    look = waits.batcher.next_look(0.0) or 0.0
    assert look == pytest.approx(TARGET_S - took_s - LEAD_S, rel=0.01)
    waits.now = 0.005
    asked.append(waits.add())
    assert waits.next() == []
    assert waits.batcher.next_look(waits.now) == look, "nobody is made late"
    waits.now = look
    assert waits.next() == asked
    full = [waits.add() for _ in range(8)]
    assert waits.next() == full, "nobody else would fit"


def test_where_nothing_more_comes_a_device_waits_for_nobody() -> None:
    """As with a delay: what drains is not held up."""
    waits = aimed(known([(rows, 0.6 * TARGET_S) for rows in SIZES]))
    asked = [waits.add()]
    assert waits.next() == []
    waits.batcher.hurry()
    assert waits.next() == asked


def bursts(waits: Queue, num_rows: int) -> None:
    """Let bursts of so many come at an idle device, a millisecond long, and silence after each."""
    for _ in range(40):
        waits.now += 1.0
        for _ in range(num_rows):
            waits.add()
            waits.drain()
            waits.num_busy, waits.start = 1, waits.now + 1.0
            waits.now += 0.001 / num_rows
        waits.now += 1.0
        waits.num_busy = 0
        waits.drain()
    waits.now += 1.0


def test_the_first_of_a_burst_waits_for_a_full_batch() -> None:
    """Where that takes less time than a small batch would waste; no longer than it takes."""
    waits = aimed(known([(rows, 0.004) for rows in SIZES]))  # one row costs as much as eight
    bursts(waits, 16)
    came_at = waits.now
    first = waits.add()
    assert waits.next() == []
    look = waits.batcher.next_look(waits.now)
    assert look is not None
    assert look - came_at == pytest.approx(8 / (15 / 0.004), rel=0.05)
    waits.now = look
    assert waits.next() == [first], "this time nobody followed"


def test_what_comes_one_by_one_waits_for_nobody() -> None:
    """Nor does the first of a burst that one batch after the other keeps up with."""
    waits = aimed(known([(rows, 0.004) for rows in SIZES]))
    bursts(waits, 4)
    first = waits.add()
    assert waits.next() == [first]


def test_where_batches_bring_nothing_the_first_is_not_held_up_by_the_second() -> None:
    """Each ends no later alone, and the first of them earlier."""
    waits = aimed(known([(rows, 0.001 * rows) for rows in SIZES]))
    asked = [waits.add() for _ in range(5)]
    assert waits.drain() == [[one] for one in asked]


@given(st.floats(0.0, 0.01), st.floats(1e-4, 0.01), st.integers(1, 32))
def test_what_runs_apart_takes_hardly_longer(fixed_s: float, row_s: float, rows: int) -> None:
    """A batch and what it leaves, against all at once, for any fixed cost."""
    capacity = known([(size, fixed_s + row_s * size) for size in (1, 32)], times=1)
    enough = Sizing(32, (), capacity).enough(rows, 1)
    assert enough == rows or 2 * enough <= rows
    apart_s = capacity.mean_s(enough) + (capacity.mean_s(rows - enough) if enough < rows else 0.0)
    assert apart_s <= capacity.mean_s(rows) / NEARLY * (1 + 1e-9)


def test_a_batch_that_is_not_full_is_bound_when_its_slot_comes_free() -> None:
    """With all that came until then."""
    waits = aimed()
    waits.start, waits.num_busy = 0.008, 1
    asked = [waits.add()]
    assert waits.next() == []
    assert waits.batcher.next_look(0.0) == pytest.approx(0.008 - LEAD_S)
    waits.now = 0.008 - LEAD_S
    asked.append(waits.add())
    assert waits.next() == asked


def test_a_full_batch_waits_for_fresher_ones_if_some_of_it_would_be_late() -> None:
    """It could be full of those who are in time when it begins."""
    waits = aimed()
    waits.start, waits.num_busy = 0.010, 1
    old = [waits.add() for _ in range(8)]
    assert waits.next() == []
    waits.now = 0.005
    fresh = [waits.add() for _ in range(8)]
    waits.now = waits.start - LEAD_S
    assert waits.next() == fresh, "twelve milliseconds are too many for the old ones"
    waits.now, waits.num_busy = 0.010 + takes_s(8), 0
    assert waits.next() == []
    assert {request for request, reason in waits.lost if reason == "target"} == set(old)


def test_a_full_batch_in_time_is_bound_at_once() -> None:
    """There is nothing to wait for."""
    waits = aimed()
    waits.start, waits.num_busy = 0.005, 1
    asked = [waits.add() for _ in range(8)]
    assert waits.next() == asked


def test_where_one_more_at_work_brings_nothing_the_next_waits_for_an_end() -> None:
    """Two that share a device fairly are each as slow as both: it is bound behind the other."""
    waits = aimed(crowded(2.0))
    waits.num_busy, waits.end = 1, 0.008  # of two slots: the other is idle
    asked = [waits.add() for _ in range(3)]
    assert waits.next() == []
    assert waits.batcher.next_look(0.0) == pytest.approx(0.008 - LEAD_S)
    waits.now = 0.008 - LEAD_S
    batch = waits.next_batch()
    assert batch is not None
    assert list(batch.requests) == asked
    assert (batch.together, batch.is_behind) == (1, True)
    waits.num_busy = 2  # more than do well together: there is no place until one has ended
    waits.add()
    assert waits.next() == []
    assert waits.batcher.next_look(waits.now) is None


def test_where_two_do_twice_as_much_the_next_is_no_later_than_it_must_be() -> None:
    """At once when it is large enough to keep up; before somebody would be late in any case."""
    waits = aimed(crowded(1.0))
    waits.num_busy = 1
    first = waits.add()
    for _ in range(60):  # far more arrive than batches of one could do
        waits.batcher._places.arrivals.come(1, 0.0)
    assert waits.next() == []
    look = waits.batcher.next_look(0.0)
    assert look is not None
    assert TARGET_S - takes_s(4) < look < TARGET_S - takes_s(1)
    waits.now = look
    assert waits.next() == [first]


def test_a_larger_number_at_work_is_tried_when_it_is_needed() -> None:
    """Nobody knows what it brings before."""
    waits = aimed()
    waits.num_busy, waits.end = 1, 0.015
    waits.add()
    assert waits.next() == [], "one keeps up"
    assert waits.batcher.next_look(0.0) == pytest.approx(0.015 - LEAD_S)
    for _ in range(500):
        waits.batcher._places.arrivals.come(1, 0.0)
    look = waits.batcher.next_look(0.0)
    assert waits.next() or (waits.batcher.next_look(0.0) or 0.0) < (look or 0.0)


def test_what_the_target_cannot_be_met_for_is_let_go() -> None:
    """At the door, or when it has waited for too long; a client's own deadline has its own name."""
    waits = aimed()
    waits.start, waits.num_busy = TARGET_S, 1
    assert waits.refuse() == "target"
    assert waits.refuse(deadline_s=0.001) == "hopeless"
    waits.start = 0.0
    late = waits.add()
    waits.now = TARGET_S
    waits.expire()
    assert waits.lost == [(late, "target")]


def test_a_target_out_of_reach_stops_nobody_for_ever() -> None:
    """The model is tried again and again, so that it is found out when it has become quicker."""
    waits = aimed(known([(1, 1.0), (8, 1.0)]))
    served = 0
    for _ in range(100):
        if waits.refuse() is None:
            waits.add()
            served += len(waits.next())
        waits.now += 1.0
    assert served > 0


def test_without_anything_known_it_batches_as_without_a_target() -> None:
    """Whatever waits, at once."""
    waits = aimed(Capacity())
    waits.num_busy = 1
    asked = [waits.add() for _ in range(11)]
    assert waits.drain() == [asked[:8], asked[8:]]


@given(
    st.lists(st.tuples(st.floats(0.0, 0.01), st.integers(0, 3), st.floats(0.0, 0.02)), max_size=40),
    st.sampled_from([1.0, 1.5, 2.0]),
)
def test_nobody_waits_beside_an_idle_device_or_for_ever(
    steps: list[tuple[float, int, float]], slowdown: float
) -> None:
    """When it is time to look, something happens, or the next look is later, within the target."""
    waits = aimed(crowded(slowdown))
    for passed_s, num_busy, busy_s in steps:
        waits.now += passed_s
        waits.num_busy = num_busy
        waits.start = waits.now + busy_s if num_busy == 3 else 0.0
        waits.end = waits.now + busy_s
        waits.add()
        waits.drain()
        look = waits.batcher.next_look(waits.now)
        if not len(waits.batcher):
            continue
        assert num_busy or len(waits.batcher) >= 4, "an idle device and two batches would fit"
        if look is None:
            continue  # for the end of what is at work
        assert waits.now < look <= max(waits.now, waits.start, waits.end) + TARGET_S
        waits.now = look
        had = len(waits.batcher)
        waits.drain()
        again = waits.batcher.next_look(waits.now)
        assert len(waits.batcher) < had or again is None or again > look


def test_what_follows_the_first_is_known_from_those_before() -> None:
    """At once from one, then as a moving mean; what comes later does not count."""
    onset = Onset()
    for begin_s, rows, expected in ((0.0, 10, 1000.0), (1.0, 2, 900.0), (2.0, 0, 787.5)):
        onset.begin(begin_s, 0.010)
        onset.rows += rows
        assert onset.end == pytest.approx(begin_s + 0.010)
        onset.begin(begin_s + 0.5, 0.0)  # of a model of which nothing is known: it teaches nothing
        assert onset.rows_per_s == pytest.approx(expected)


def test_rates_are_those_of_now() -> None:
    """A steady stream is known after some targets, a burst after a fraction of one."""
    rate = ArrivalRate(TARGET_S)
    for millisecond in range(200):
        rate.come(3, millisecond / 1e3)
    assert rate.rows_per_s(0.2) == pytest.approx(3000, rel=0.1)
    for tenth in range(50):
        rate.come(3, 0.2 + tenth / 1e4)
    assert rate.rows_per_s(0.205) > 15_000
    assert rate.rows_per_s(10.0) == pytest.approx(0.0, abs=1e-3)
    assert math.isfinite(rate.rows_per_s(1e9))
