"""Slots, lanes, their states, the pool and the poller on the virtual device."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.device.host import HostDevice
from headrace.errors import DeviceError
from headrace.slots.batch import Batch
from headrace.slots.lane import Lane
from headrace.slots.pool import SlotPool
from headrace.slots.state import SLOT_STEPS, LaneState, SlotState
from helpers.core_rig import Rig


def test_lanes_compute_in_order_on_their_own_memory() -> None:
    """The second lane's copy does not touch what the first one still computes on."""
    rig = Rig(num_slots=1)
    first, second = rig.submit(bytes([1]) * 900), rig.submit(bytes([7]) * 900)
    rig.run()
    assert first.is_right
    assert second.is_right
    lanes = rig.slots[0].lanes
    assert lanes[0].memory is not None
    assert lanes[1].memory is not None
    assert lanes[0].memory.ptr != lanes[1].memory.ptr
    rig.close()


def test_a_lanes_memory_grows_and_its_bindings_follow() -> None:
    """A larger request moves the device buffer; a smaller one after it is still right."""
    rig = Rig(num_slots=1)
    for size in (10, 9000, 10, 20_000, 9000):
        rig.submit(bytes(range(10)) * (size // 10))
        rig.run()
    assert all(asked.is_right for asked in rig.asked)
    rig.close()


def test_the_memory_of_a_lane_in_flight_never_moves() -> None:
    """Growing it would pull it away from under the device."""
    rig = Rig(num_slots=1)
    rig.submit(b"abc")
    rig.step()
    (lane,) = rig.slots[0].in_flight
    with pytest.raises(AssertionError, match="must not move"):
        lane.binding_for(rig.layout(50_000))
    rig.run()
    rig.close()


def test_no_device_memory_ends_the_request_with_an_error() -> None:
    """An allocation that fails is the request's error, and the slot goes on."""
    rig = Rig(num_slots=1)
    rig.blocks.reserve(4096, 2)
    rig.device.fail_alloc()
    failed = rig.submit(b"abc")
    rig.run()
    assert isinstance(failed.errors[0], DeviceError)
    after = rig.submit(b"abc")
    rig.run()
    assert after.is_right
    rig.close()


@given(st.sampled_from(list(SlotState)), st.sampled_from(list(SlotState)))
def test_a_slot_takes_only_the_steps_of_the_table(before: SlotState, after: SlotState) -> None:
    """An illegal step raises and changes nothing."""
    rig = Rig(num_slots=1)
    slot = rig.slots[0]
    slot.state = before
    if after is before or after in SLOT_STEPS[before]:
        slot.move_to(after)
        assert slot.state is after
    else:
        with pytest.raises(ValueError, match="cannot go"):
            slot.move_to(after)
        assert slot.state is before


def test_a_faulted_slot_takes_no_more_work() -> None:
    """The pool passes it over."""
    rig = Rig(num_slots=2)
    rig.poller.fault(rig.slots[0], DeviceError("gone"))
    for _ in range(6):
        rig.submit(b"abc")
    rig.step()
    assert [len(slot.in_flight) for slot in rig.slots] == [0, 2]
    rig.run()
    rig.close()


def test_a_pool_without_open_slots_is_not_ready() -> None:
    """Ready means that a request could be answered now."""
    rig = Rig(num_slots=2)
    was_ready = rig.pool.is_ready
    for slot in rig.slots:
        rig.poller.fault(slot, DeviceError("gone"))
    assert (was_ready, rig.pool.is_ready) == (True, False)
    assert rig.pool.next_lane() is None
    rig.close()


def test_closing_a_slot_finishes_what_is_enqueued() -> None:
    """The event of a lane in flight is done before context and memory go."""
    rig = Rig(num_slots=1)
    rig.submit(b"abc")
    rig.step()
    (lane,) = rig.slots[0].in_flight
    event = lane.event
    rig.pool.close()
    rig.pool.close()
    assert rig.slots[0].context.num_runs == 1  # type: ignore[attr-defined]
    with pytest.raises(AssertionError):
        event.is_done()  # closed with the slot


def test_every_slot_is_closed_although_one_fails() -> None:
    """All faults are told together."""
    rig = Rig(num_slots=3)

    def broken() -> None:
        raise RuntimeError("a broken context")

    rig.slots[1].context.close = broken  # type: ignore[method-assign]
    with pytest.raises(ExceptionGroup) as caught:
        rig.pool.close()
    assert len(caught.value.exceptions) == 1
    assert all(slot.state is SlotState.CLOSED for slot in rig.slots)


class Asking:
    """An event that notes who was asked."""

    def __init__(self, lane: Lane, asked: list[Lane]) -> None:
        self.lane, self.asked, self.event = lane, asked, lane.event

    def is_done(self) -> bool:
        """Note the question and pass it on."""
        self.asked.append(self.lane)
        return self.event.is_done()

    def close(self) -> None:
        """Close what it stands for."""
        self.event.close()


def test_the_poller_asks_only_the_oldest_lane_of_a_slot() -> None:
    """A stream finishes in order: one query a slot and sweep while nothing is done."""
    rig = Rig(num_slots=1)
    for _ in range(2):
        rig.submit(b"abc")
    rig.step()
    asked: list[Lane] = []
    for lane in rig.slots[0].lanes:
        lane.event = Asking(lane, asked)
    rig.step()
    assert asked == [rig.slots[0].lanes[0]]
    rig.run()
    rig.close()


def test_a_lane_is_free_only_after_its_event() -> None:
    """Not by stepping, not by cancelling: the device says so."""
    rig = Rig(num_slots=1)
    asked = rig.submit(b"abc")
    rig.step()
    (lane,) = rig.slots[0].in_flight
    rig.scheduler.cancel(asked.request)
    for _ in range(3):
        rig.step()
        assert lane.state is LaneState.IN_FLIGHT
    rig.device.run_until_idle()
    rig.step()
    assert lane.state is LaneState.FREE
    rig.close()


def test_an_inline_slot_answers_within_the_step() -> None:
    """On an inline stream there is nothing to wait for."""
    device = HostDevice()
    rig = Rig(num_slots=0)
    stream = device.open_inline_stream()
    ran = []

    class Context:
        def bind(self, *_: object) -> object:
            return SimpleNamespace(results=[])

        def enqueue(self, _: object) -> None:
            ran.append(True)

        def close(self) -> None:
            pass

    from headrace.slots.slot import Slot

    slot = Slot(
        0,
        device,
        stream,
        Context(),  # type: ignore[arg-type]
        clock=rig.clock,
        num_lanes=1,
        is_inline=True,
    )
    rig.line.pool = SlotPool([slot])
    asked = rig.submit(b"abc")
    rig.step()
    assert ran == [True]
    assert asked.num_ends == 1
    assert rig.blocks.num_leased == 0
    slot.close()


def test_a_batch_on_a_unified_device_uses_the_block_itself() -> None:
    """No copy and no device memory: the engine works on the staging block."""
    rig = Rig(num_slots=1, is_unified=True)
    asked = rig.submit(b"abc")
    rig.run()
    assert asked.is_right
    assert all(lane.memory is None for lane in rig.slots[0].lanes)
    rig.close()


def test_a_batch_knows_its_rows() -> None:
    """The slot's batch carries what the scheduler gave it."""
    rig = Rig(num_slots=1)
    batch = Batch((rig.request(b"abc").request,), rig.layout(3), 1)
    assert batch.rows == 1
    rig.close()
