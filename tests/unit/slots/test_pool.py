"""Which slot takes the next batch."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.slots.batch import Batch
from headrace.slots.state import LaneState, SlotState
from helpers.core_rig import Rig


def taken(rig: Rig, size: int) -> int:
    """Serve one request and return the index of the slot that ran it."""
    rig.submit(b"x" * size)
    rig.step()
    (slot,) = (slot for slot in rig.slots if slot.in_flight)
    rig.run()
    return slot.index


def test_a_batch_goes_where_its_layout_ran_last() -> None:
    """Idle slots keep to their shapes, whatever the order of requests."""
    rig = Rig(num_slots=3)
    homes = {size: taken(rig, size) for size in (10, 20, 30)}
    assert sorted(homes.values()) == [0, 1, 2]
    for size in (30, 10, 10, 20, 30, 20, 10):
        assert taken(rig, size) == homes[size]
    rig.close()


def test_an_idle_slot_goes_before_a_busy_one_that_knows_the_layout() -> None:
    """Shapes decide between slots that are equally busy, and only then."""
    rig = Rig(num_slots=2)
    home = taken(rig, 10)
    for _ in range(2):
        rig.submit(b"x" * 10)
    rig.step()
    assert [len(slot.in_flight) for slot in rig.slots] == [1, 1]
    rig.run()
    assert home in (0, 1)
    rig.close()


def test_equals_go_in_turn() -> None:
    """New layouts are spread over all slots."""
    rig = Rig(num_slots=4)
    assert [taken(rig, size) for size in range(1, 9)] == [0, 1, 2, 3, 0, 1, 2, 3]
    rig.close()


@given(
    st.lists(st.tuples(st.integers(0, 2), st.booleans(), st.sampled_from([1, 2])), max_size=3),
    st.sampled_from([1, 2]),
)
def test_an_idle_slot_is_chosen_and_a_warm_one_first(
    states: list[tuple[int, bool, int]], size: int
) -> None:
    """Where none is idle it is the one whose work was enqueued first: all take the same."""
    rig = Rig(num_slots=len(states))
    for index, (slot, (busy, is_open, last)) in enumerate(zip(rig.slots, states, strict=True)):
        slot.in_flight.extend(slot.lanes[:busy])
        for lane in slot.lanes[:busy]:
            lane.state = LaneState.IN_FLIGHT
            lane.batch = Batch((), rig.layout(1), 1)
            lane.enqueued_at = 10.0 - index
        slot.state = SlotState.OPEN if is_open else SlotState.FAULTED
        slot.last_layout = rig.layout(last)
    layout = rig.layout(size)
    able = [slot for slot in rig.slots if slot.state is SlotState.OPEN and len(slot.in_flight) < 2]
    idle = [slot for slot in able if not slot.in_flight]
    chosen = rig.pool.next_lane(layout)
    assert (chosen is not None) == bool(able)
    if chosen is not None and idle:
        assert chosen.slot in idle
        is_any_warm = any(slot.last_layout is layout for slot in idle)
        assert (chosen.slot.last_layout is layout) == is_any_warm
    elif chosen is not None:
        assert chosen.slot is able[-1]
    for slot in rig.slots:
        slot.in_flight.clear()
    rig.close()


def test_busy_slots_are_counted_by_what_is_in_flight() -> None:
    """However much that is."""
    rig = Rig(num_slots=2)
    counts = [rig.pool.num_busy()]
    for _ in range(3):
        rig.submit(b"x" * 10)
        rig.step()
        counts.append(rig.pool.num_busy())
    assert counts == [0, 1, 2, 2]
    rig.run()
    rig.close()


def test_a_batch_goes_behind_another_though_a_slot_is_idle() -> None:
    """Where it is asked for, and only while one at work has a lane for it."""
    rig = Rig(num_slots=2, launch_s=0.010, has_marks=True)
    taken(rig, 10)
    layout = rig.layout(10)
    assert rig.pool.ends_at(5.0) == inf
    first = rig.pool.next_lane(layout, is_behind=True)
    assert first is not None, "nothing is at work: an idle slot will do"
    rig.submit(b"x" * 10)
    rig.step()
    (busy,) = (slot for slot in rig.slots if slot.in_flight)
    assert (rig.pool.num_busy(), rig.pool.num_idle()) == (1, 1)
    assert rig.pool.ends_at(rig.clock()) == pytest.approx(rig.clock() + 0.010, rel=0.01)
    behind = rig.pool.next_lane(layout, is_behind=True)
    beside = rig.pool.next_lane(layout)
    assert behind is not None
    assert beside is not None
    assert (behind.slot is busy, beside.slot is busy) == (True, False)
    for lane in busy.lanes:
        lane.state = LaneState.IN_FLIGHT
    assert rig.pool.ends_at(rig.clock()) == inf
    busy.lanes[1].state = LaneState.FREE
    rig.run()
    rig.close()


def test_a_batch_begins_when_the_first_slot_has_done_what_it_has() -> None:
    """At once on an idle slot; behind one batch where a lane is free; behind all where none is."""
    rig = Rig(num_slots=2, launch_s=0.010, has_marks=True)
    for size in (10, 20, 10, 20):  # each slot learns what it runs
        taken(rig, size)
    now = rig.clock()
    assert rig.pool.starts_at(now) == now
    begins_at = []
    for size in (10, 20, 10, 20):
        rig.submit(b"x" * size)
        rig.step()
        begins_at.append(rig.pool.starts_at(now))
    assert begins_at[0] == now  # the other slot is idle
    assert begins_at[1:3] == [pytest.approx(now + 0.010, rel=0.01)] * 2
    assert begins_at[3] == pytest.approx(now + 0.020, rel=0.01)
    late = now + 1.0  # it takes longer than ever before: soon, but nobody knows when
    assert rig.pool.starts_at(late) == pytest.approx(late + 0.010, rel=0.01)
    rig.run()
    rig.close()


def test_where_nothing_is_known_a_batch_begins_at_once() -> None:
    """Before the first run has taught anything, and where no slot works any more."""
    rig = Rig(num_slots=1)
    rig.submit(b"x")
    rig.step()
    assert rig.pool.starts_at(5.0) == 5.0
    rig.run()
    rig.slots[0].move_to(SlotState.FAULTED)
    assert rig.pool.starts_at(6.0) == 6.0
    rig.close()
