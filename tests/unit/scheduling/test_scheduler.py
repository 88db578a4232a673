"""The scheduler on the virtual device: every request ends once, with its own data or an error."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import (
    AbandonedError,
    DeviceError,
    EngineError,
    ExpiredError,
    OverloadedError,
    TooLargeError,
    UnavailableError,
)
from headrace.scheduling.request import RequestState
from headrace.slots.state import LaneState, SlotState
from helpers.core_rig import Rig


@pytest.fixture
def rig() -> Iterator[Rig]:
    """Two slots with two lanes each."""
    rig = Rig()
    yield rig
    rig.run()
    rig.close()


def test_a_request_is_answered_with_its_own_data(rig: Rig) -> None:
    """What comes back is computed from what was sent."""
    asked = rig.submit(b"abc")
    rig.run()
    assert asked.is_right


def test_an_empty_tensor_is_answered(rig: Rig) -> None:
    """Zero bytes need no copy, but still an answer."""
    asked = rig.submit(b"")
    rig.run()
    assert asked.is_right


def test_nothing_is_answered_before_the_event_is_done(rig: Rig) -> None:
    """The reply waits for the device, however often the core is stepped."""
    asked = rig.submit(b"abc")
    for _ in range(5):
        rig.step()
    assert asked.num_ends == 0
    assert rig.poller.num_in_flight == 1


def test_both_lanes_of_a_slot_are_filled_while_the_first_computes() -> None:
    """Double buffering: the second batch is enqueued behind the first before that is done."""
    rig = Rig(num_slots=1)
    for _ in range(3):
        rig.submit(b"abc")
    rig.step()
    assert len(rig.slots[0].in_flight) == 2
    assert len(rig.line.batcher) == 1
    rig.run()
    assert all(asked.is_right for asked in rig.asked)
    rig.close()


def test_idle_slots_are_filled_first_then_second_lanes() -> None:
    """Round robin over slots: no slot gets a second batch while another is idle."""
    rig = Rig(num_slots=3)
    for _ in range(3):
        rig.submit(b"abc")
    rig.step()
    assert [len(slot.in_flight) for slot in rig.slots] == [1, 1, 1]
    for _ in range(3):
        rig.submit(b"abc")
    rig.step()
    assert [len(slot.in_flight) for slot in rig.slots] == [2, 2, 2]
    rig.run()
    rig.close()


def test_a_slot_takes_turns() -> None:
    """Requests one after another go to one slot after another."""
    rig = Rig(num_slots=3)
    for _ in range(6):
        rig.submit(b"abc")
        rig.run()
    assert [slot.context.num_runs for slot in rig.slots] == [2, 2, 2]  # type: ignore[attr-defined]
    rig.close()


def test_cancelling_in_flight_keeps_the_block_until_the_event(rig: Rig) -> None:
    """A cancelled request's block goes back when the device is done, not when the caller leaves."""
    asked = rig.submit(b"abc")
    rig.step()
    rig.scheduler.cancel(asked.request)
    rig.step()
    assert rig.blocks.num_leased == 1
    assert asked.num_ends == 0
    rig.run()
    assert rig.blocks.num_leased == 0
    assert [type(error) for error in asked.errors] == [AbandonedError]


def test_a_block_of_a_cancelled_request_is_not_given_to_another_too_early() -> None:
    """With one block, the next request waits for the cancelled one's event and is then right."""
    rig = Rig(num_slots=1, budget_bytes=4096)
    first = rig.submit(b"first")
    rig.step()
    rig.scheduler.cancel(first.request)
    second = rig.submit(b"other")
    rig.step()
    assert second.request.state is RequestState.WAITING
    rig.run()
    assert second.is_right
    assert first.replies == []
    rig.close()


def test_cancelling_in_the_queue_ends_at_once(rig: Rig) -> None:
    """A queued request never reaches the device once its caller has left."""
    for _ in range(4):
        rig.submit(b"abc")
    rig.step()
    queued = rig.submit(b"late")
    rig.scheduler.cancel(queued.request)
    assert [type(error) for error in queued.errors] == [AbandonedError]
    assert queued.request.block is None


def test_cancelling_twice_or_after_the_end_does_nothing(rig: Rig) -> None:
    """A cancel that comes late changes nothing."""
    asked = rig.submit(b"abc")
    rig.run()
    rig.scheduler.cancel(asked.request)
    rig.scheduler.cancel(asked.request)
    rig.run()
    assert asked.is_right


def test_a_queued_request_is_dropped_when_its_deadline_passes() -> None:
    """It costs no run of the model, and is counted."""
    rig = Rig(num_slots=1)
    for _ in range(2):
        rig.submit(b"abc")
    rig.step()
    late = rig.submit(b"late", deadline=rig.clock() + 0.0005)
    rig.run()
    assert [type(error) for error in late.errors] == [ExpiredError]
    assert rig.slots[0].context.num_runs == 2  # type: ignore[attr-defined]
    assert rig.metrics.read().drops["expired"] == 1
    rig.close()


def test_a_passed_deadline_is_refused_at_the_door(rig: Rig) -> None:
    """What is hopeless on arrival gets no block."""
    with pytest.raises(ExpiredError):
        rig.submit(b"abc", deadline=rig.clock())
    assert rig.blocks.num_leased == 0


def test_deadlines_are_noticed_while_no_lane_is_free() -> None:
    """A stuck device does not keep callers beyond their deadline."""
    rig = Rig(num_slots=1)
    for _ in range(2):
        rig.submit(b"abc")
    rig.step()
    late = rig.submit(b"late", deadline=0.5)
    look = rig.scheduler.next_look(0.0)
    assert look is not None
    assert look <= 0.5
    rig.scheduler.step(0.6)
    assert [type(error) for error in late.errors] == [ExpiredError]
    rig.run()
    rig.close()


def test_a_full_queue_refuses(rig: Rig) -> None:
    """The queue has a bound, and a refused request leaves nothing behind."""
    rig.line.max_queue_size = rig.line.burst_size = 3
    for _ in range(4 + 3):  # four lanes, and the queue
        rig.submit(b"abc")
    with pytest.raises(OverloadedError, match="Exceeds maximum queue size"):
        rig.submit(b"abc")
    assert rig.blocks.num_leased == 7
    assert rig.metrics.read().drops["queue_full"] == 1


def test_requests_wait_for_blocks_in_order_and_within_bounds() -> None:
    """When the staging memory is spent, requests wait; beyond the bound they are refused."""
    rig = Rig(num_slots=1, budget_bytes=2 * 4096, max_waiting_bytes=2 * rig_size(100))
    for index in range(2):
        rig.submit(bytes([index]) * 100)
    waiting = [rig.submit(bytes([index]) * 100) for index in (2, 3)]
    assert [asked.request.state for asked in waiting] == [RequestState.WAITING] * 2
    with pytest.raises(OverloadedError):
        rig.submit(bytes([4]) * 100)
    assert rig.metrics.read().drops["no_block"] == 1
    rig.run()
    assert all(asked.is_right for asked in rig.asked[:4])
    assert rig.line.num_waiting == 0
    rig.close()


def rig_size(payload_bytes: int) -> int:
    """Return what a request of this payload needs of the staging memory."""
    return Rig(num_slots=0).layout(payload_bytes).size_bytes


def test_a_request_larger_than_all_staging_memory_is_refused() -> None:
    """It could wait for ever, so it does not wait at all."""
    rig = Rig(budget_bytes=8192)
    with pytest.raises(TooLargeError, match="pinned-memory-pool-byte-size"):
        rig.submit(bytes(10_000))
    rig.close()


def test_a_waiting_request_can_be_cancelled() -> None:
    """It is taken out of the line for blocks."""
    rig = Rig(num_slots=1, budget_bytes=4096)
    rig.submit(b"abc")
    waiting = rig.submit(b"abc")
    rig.scheduler.cancel(waiting.request)
    assert [type(error) for error in waiting.errors] == [AbandonedError]
    assert rig.line.num_waiting == 0
    rig.run()
    rig.close()


def test_a_failed_launch_ends_its_own_request_only(rig: Rig) -> None:
    """The engine's error goes to its caller; the slot and the others go on."""
    rig.device.fail_launch(EngineError("no"), after=1)
    asked = [rig.submit(bytes([index])) for index in range(4)]
    rig.run()
    assert sum(one.is_right for one in asked) == 3
    (failed,) = [one for one in asked if one.errors]
    assert isinstance(failed.errors[0], EngineError)
    assert all(slot.state is SlotState.OPEN for slot in rig.slots)
    assert rig.submit(b"next").num_ends == 0
    rig.run()
    assert rig.asked[-1].is_right


def test_a_refused_enqueue_leaves_the_lane_to_its_event(rig: Rig) -> None:
    """The copies before it are on the stream already, so block and lane wait for the event."""
    rig.device.fail_launch(EngineError("no"), is_refused=True)
    asked = rig.submit(b"abc")
    rig.step()
    assert asked.num_ends == 0
    assert rig.blocks.num_leased == 1
    rig.run()
    assert isinstance(asked.errors[0], EngineError)
    assert all(lane.state is LaneState.FREE for slot in rig.slots for lane in slot.lanes)


def test_a_dead_device_ends_everything_and_is_told_within_one_poll() -> None:
    """In flight, queued and new requests get an error; no block in flight is used again."""
    rig = Rig(num_slots=1)
    asked = [rig.submit(bytes([index])) for index in range(4)]
    rig.step()
    rig.device.fail_device()
    rig.step()
    assert [one.num_ends for one in asked] == [1, 1, 1, 1]
    assert all(one.errors for one in asked)
    assert isinstance(rig.scheduler.sticky, DeviceError)
    assert not rig.pool.is_ready
    assert rig.blocks.num_leased == 2  # what was in flight is never used again
    with pytest.raises(UnavailableError):
        rig.submit(b"new")


def test_a_stalled_slot_faults_and_its_callers_are_told() -> None:
    """There is a bound even for a device that never finishes."""
    rig = Rig(num_slots=2, stall_timeout_s=1.0)
    stuck = rig.submit(b"stuck")
    rig.step()
    rig.scheduler.step(2.0)
    assert isinstance(stuck.errors[0], DeviceError)
    assert rig.slots[0].state is SlotState.FAULTED
    assert rig.pool.is_ready  # the other slot works on
    other = rig.submit(b"other")
    rig.run()
    assert other.is_right


def test_refusing_new_requests_serves_what_is_in(rig: Rig) -> None:
    """Draining loses nothing that was accepted."""
    asked = [rig.submit(bytes([index])) for index in range(9)]
    rig.scheduler.refuse_new()
    with pytest.raises(UnavailableError, match="shutting down"):
        rig.submit(b"new")
    rig.run()
    assert all(one.is_right for one in asked)
    assert rig.scheduler.is_idle


def test_closing_ends_what_never_reached_the_device() -> None:
    """Queued requests get an error instead of silence."""
    rig = Rig(num_slots=1)
    asked = [rig.submit(bytes([index])) for index in range(5)]
    rig.step()
    rig.scheduler.close()
    assert [one.num_ends for one in asked] == [0, 0, 1, 1, 1]
    rig.run()
    assert all(one.is_right for one in asked[:2])
    rig.close()


def test_a_reply_that_fails_does_not_keep_its_block(rig: Rig) -> None:
    """An error in the front door costs its own request, not the server's memory."""
    asked = rig.request(b"abc")

    def broken(*_: object) -> None:
        raise RuntimeError("a bug in the front door")

    asked.request.on_end = broken
    rig.scheduler.submit(asked.request, rig.clock())
    rig.run()
    assert rig.blocks.num_leased == 0
    assert rig.submit(b"abc").num_ends == 0


actions = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), st.integers(0, 6000)),
        st.tuples(st.just("deadline"), st.integers(0, 4)),
        st.tuples(st.just("cancel"), st.integers(0, 200)),
        st.tuples(st.just("fail"), st.just(0)),
        st.tuples(st.just("device"), st.integers(1, 4)),
        st.tuples(st.just("step"), st.just(0)),
    ),
    max_size=80,
)


@given(actions, st.integers(1, 3), st.booleans())
@settings(max_examples=150, deadline=None)
def test_every_request_ends_once_whatever_happens(
    script: list[tuple[str, int]], num_slots: int, is_unified: bool
) -> None:
    """Random traffic, cancels, deadlines and failures: one end each, only own data, no leak."""
    rig = Rig(num_slots=num_slots, is_unified=is_unified, budget_bytes=5 * 16384)
    rng = random.Random(1)
    refused = 0
    for action, value in script:
        try:
            if action == "submit":
                rig.submit(rng.randbytes(value))
            elif action == "deadline":
                rig.submit(rng.randbytes(9), deadline=rig.clock() + value * 0.001)
            elif action == "cancel" and rig.asked:
                rig.scheduler.cancel(rig.asked[value % len(rig.asked)].request)
            elif action == "fail":
                rig.device.fail_launch(EngineError("no"))
            elif action == "device":
                for _ in range(value):
                    rig.device.step()
            else:
                rig.step()
        except (OverloadedError, ExpiredError, TooLargeError):
            refused += 1
            assert rig.asked.pop().num_ends == 0
    rig.run()
    assert [asked.num_ends for asked in rig.asked] == [1] * len(rig.asked)
    assert all(asked.is_right for asked in rig.asked if asked.replies)
    assert rig.blocks.num_leased == 0
    assert rig.poller.is_idle
    rig.close()


@pytest.mark.parametrize(("launch_s", "comes_first"), [(0.01, "reply"), (0.0001, "enqueue")])
def test_replies_wait_for_the_device_only_when_it_may_run_dry(
    launch_s: float, comes_first: str
) -> None:
    """With long work behind on the stream the reply is first, with short work the free lane."""
    rig = Rig(num_slots=1, has_marks=True, launch_s=launch_s)
    for _ in range(60):
        rig.submit(b"abc")
        rig.run()
    asked = [rig.submit(b"abc") for _ in range(3)]
    rig.step()
    order: list[str] = []
    (slot,) = rig.slots
    end, enqueue = asked[0].request.on_end, slot.enqueue

    def on_end(*what: Any) -> None:
        order.append("reply")
        end(*what)

    def note(*what: Any) -> None:
        order.append("enqueue")
        enqueue(*what)

    asked[0].request.on_end = on_end
    slot.enqueue = note  # type: ignore[assignment,method-assign]
    while not order:
        rig.device.step()
        rig.step()
    assert order[0] == comes_first
    rig.run()
    assert all(one.is_right for one in asked)
    rig.close()


def test_a_request_that_cannot_be_met_any_more_never_runs() -> None:
    """What is left of its deadline is less than even a quick run takes: it costs no device time."""
    rig = Rig(num_slots=1, has_marks=True, launch_s=0.01)
    for _ in range(40):
        rig.submit(b"abc")
        rig.run()
    num_runs = rig.slots[0].context.num_runs  # type: ignore[attr-defined]
    hopeless = rig.submit(b"abc", deadline=rig.clock() + 0.002)
    possible = rig.submit(b"abc", deadline=rig.clock() + 0.1)
    rig.run()
    assert [type(error) for error in hopeless.errors] == [ExpiredError]
    assert possible.is_right
    assert rig.slots[0].context.num_runs == num_runs + 1  # type: ignore[attr-defined]
    rig.close()
