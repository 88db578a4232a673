"""A slot for one stream alone: nobody else's work reaches it, and it comes back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import (
    AbandonedError,
    DeviceError,
    NoSlotError,
    RetiredError,
    UnavailableError,
)
from headrace.link.local import LocalLink
from headrace.rpc.pins import KEY, Pins, wants_pin
from headrace.scheduling.line import Line
from headrace.slots.state import SlotState
from helpers.core_rig import Asked, Rig


@pytest.fixture
def rig() -> Iterator[Rig]:
    """Three slots."""
    rig = Rig(num_slots=3)
    yield rig
    rig.close()


def ask(rig: Rig, line: Line, payload: bytes = b"mine") -> Asked:
    """Submit a request to a line."""
    asked = rig.request(payload)
    asked.request.line = line
    rig.scheduler.submit(asked.request, rig.clock())
    return asked


def busy(rig: Rig) -> list[int]:
    """How many batches each slot has in flight."""
    return [len(slot.in_flight) for slot in rig.slots]


def test_nobody_else_runs_on_a_pinned_slot(rig: Rig) -> None:
    """However many wait; and the stream that has it never waits for them."""
    link = LocalLink(rig.scheduler)
    mine = link.pin(rig.line)
    others = [rig.submit(bytes([index])) for index in range(20)]
    rig.step()
    assert sorted(busy(rig)) == [0, 2, 2]
    frame = ask(rig, mine)
    rig.step()
    assert [len(slot.in_flight) for slot in mine.pool.slots] == [1]
    rig.run()
    assert all(one.is_right for one in (*others, frame))


def test_one_slot_stays_for_all(rig: Rig) -> None:
    """A further stream is refused, with what there is; a slot that comes back can be pinned."""
    link = LocalLink(rig.scheduler)
    first, _second = link.pin(rig.line), link.pin(rig.line)
    assert rig.pool.num_reserved == 2
    with pytest.raises(NoSlotError, match="it has 3, 2 are pinned and one stays for all"):
        link.pin(rig.line)
    assert rig.submit(b"other").num_ends == 0
    rig.run()
    link.unpin(rig.line, first)
    assert rig.pool.num_reserved == 1
    link.pin(rig.line)


def test_a_model_of_one_slot_has_none_to_spare() -> None:
    """As models have that run inline."""
    rig = Rig(num_slots=1)
    with pytest.raises(NoSlotError):
        LocalLink(rig.scheduler).pin(rig.line)
    assert rig.submit(b"other").num_ends == 0
    rig.run()
    rig.close()


def test_a_neighbour_that_stalls_or_fails_does_not_touch_it() -> None:
    """The shared slots hang and are given up; the stream is served all the while."""
    rig = Rig(num_slots=3, stall_timeout_s=1.0)
    link = LocalLink(rig.scheduler)
    mine = link.pin(rig.line)
    stuck = [rig.submit(b"stuck") for _ in range(4)]
    rig.step()
    rig.scheduler.step(2.0)  # nothing has come back from the device
    assert all(isinstance(one.errors[0], DeviceError) for one in stuck)
    assert not rig.line.pool.is_ready
    other = rig.submit(b"other")
    frame = ask(rig, mine)
    rig.run()
    assert isinstance(other.errors[0], UnavailableError)
    assert frame.is_right


def test_a_pinned_slot_that_fails_is_the_streams_own_misfortune() -> None:
    """Others go on; the stream gets another slot with its next request, while there is one."""
    rig = Rig(num_slots=3, stall_timeout_s=1.0)
    link = LocalLink(rig.scheduler)
    pins = Pins(link, is_wanted=True)
    stuck = ask(rig, pins.line_for(rig.line))
    rig.step()
    rig.scheduler.step(2.0)
    assert isinstance(stuck.errors[0], DeviceError)
    again = ask(rig, pins.line_for(rig.line))
    other = rig.submit(b"other")
    rig.run()
    assert again.is_right
    assert other.is_right
    assert [slot.state for slot in rig.slots].count(SlotState.FAULTED) == 1
    with pytest.raises(NoSlotError):
        link.pin(rig.line)
    pins.close()


def test_what_waits_ends_with_the_stream_and_what_runs_comes_back(rig: Rig) -> None:
    """The slot takes others' work behind what is in flight on it; no block is lost."""
    link = LocalLink(rig.scheduler)
    mine = link.pin(rig.line)
    (slot,) = mine.pool.slots
    asked = [ask(rig, mine, bytes([index])) for index in range(5)]
    rig.step()
    for one in asked:
        link.cancel(one.request)
    link.unpin(rig.line, mine)
    assert not rig.scheduler.is_idle
    assert [one.num_ends for one in asked] == [0, 0, 1, 1, 1]
    others = [rig.submit(bytes([index])) for index in range(12)]
    rig.step()
    rig.run()
    assert all(isinstance(one.errors[0], AbandonedError) for one in asked)
    assert all(one.is_right for one in others)
    assert slot.lanes[0].slot.last_layout is rig.layout(1)
    assert rig.blocks.num_leased == 0
    assert rig.line.pins == []


def test_a_slot_is_pinned_behind_what_is_in_flight_on_it() -> None:
    """Work of others on it is finished, and answered to them."""
    rig = Rig(num_slots=2)
    link = LocalLink(rig.scheduler)
    others = [rig.submit(bytes([index])) for index in range(6)]
    rig.step()
    mine = link.pin(rig.line)
    frame = ask(rig, mine)
    rig.run()
    assert all(one.is_right for one in (*others, frame))
    rig.close()


def test_a_version_that_is_unloaded_takes_its_pins_along(rig: Rig) -> None:
    """What is in is served, what comes is told to look again, and then nothing is left of it."""
    link = LocalLink(rig.scheduler)
    pins = Pins(link, is_wanted=True)
    asked = [ask(rig, pins.line_for(rig.line), bytes([index])) for index in range(4)]
    rig.step()
    link.retire_line(rig.line)
    with pytest.raises(RetiredError):
        ask(rig, rig.line.pins[0])
    with pytest.raises(RetiredError):
        pins.line_for(Line("new", rig.line.batcher, rig.pool, rig.metrics, 1, is_retired=True))
    assert not link.is_done_with(rig.line)
    assert rig.line.pins, "what is in is served"
    rig.run()
    assert all(one.is_right for one in asked)
    assert link.is_done_with(rig.line)
    with pytest.raises(RetiredError):
        pins.line_for(Line("new", rig.line.batcher, rig.pool, rig.metrics, 1, is_retired=True))
    assert rig.line.pins == []
    link.remove_line(rig.line)


def test_what_waits_for_a_pinned_slot_is_dropped_with_its_version(rig: Rig) -> None:
    """When the patience for what waits is over."""
    link = LocalLink(rig.scheduler)
    mine = link.pin(rig.line)
    asked = [ask(rig, mine, bytes([index])) for index in range(5)]
    rig.step()
    link.retire_line(rig.line)
    link.drop_waiting(rig.line, UnavailableError("unloaded"))
    rig.run()
    assert [one.is_right for one in asked] == [True, True, False, False, False]
    assert link.is_done_with(rig.line)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.sampled_from(["pin", "unpin", "mine", "other", "step", "device"]), max_size=60))
def test_whatever_comes_every_request_ends_once_and_rightly(actions: list[str]) -> None:
    """And in the end every slot is everybody's again."""
    rig = Rig(num_slots=3, max_queue_size=1000)
    link = LocalLink(rig.scheduler)
    pinned: list[Line] = []
    cancelled: list[Asked] = []
    mine: list[Asked] = []
    for index, action in enumerate(actions):
        if action == "pin" and len(pinned) < 2:
            pinned.append(link.pin(rig.line))
        elif action == "unpin" and pinned:
            line = pinned.pop(0)
            for one in [each for each in mine if each.request.line is line]:
                cancelled.append(one)
                link.cancel(one.request)
            link.unpin(rig.line, line)
        elif action == "mine" and pinned:
            mine.append(ask(rig, pinned[index % len(pinned)], bytes([index])))
        elif action == "other":
            rig.submit(bytes([index]))
        elif action == "step":
            rig.step()
        else:
            rig.device.step()
        for line in pinned:
            for slot in line.pool.slots:
                assert slot not in rig.pool._shared
    rig.run()
    for line in pinned:
        link.unpin(rig.line, line)
    for one in rig.asked:
        assert one.num_ends == 1
        assert one.is_right or one in cancelled
    assert (rig.pool.num_reserved, rig.line.pins, rig.blocks.num_leased) == (0, [], 0)
    rig.close()


def test_who_asks_for_it(rig: Rig) -> None:
    """Only a stream that says so; what is no answer is refused."""
    assert wants_pin([("x", "y"), (KEY, "true")])
    assert not wants_pin([(KEY, "false")])
    assert not wants_pin([])
    with pytest.raises(Exception, match="'headrace-pin-slot' is 'yes', expected true or false"):
        wants_pin([(KEY, "yes")])
    pins = Pins(LocalLink(rig.scheduler), is_wanted=False)
    assert pins.line_for(rig.line) is rig.line
    pins.close()
