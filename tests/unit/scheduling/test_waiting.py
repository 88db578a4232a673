"""Requests that wait for a staging block: in order of arrival, whatever their size."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.errors import (
    AbandonedError,
    DeviceError,
    ExpiredError,
    TooLargeError,
    UnavailableError,
)
from headrace.scheduling.request import RequestState
from headrace.slots.blocks import size_class
from helpers.core_rig import Asked, Rig

SMALL, LARGE = bytes(1000), bytes(6000)


def test_a_large_request_is_not_starved_by_small_ones() -> None:
    """What would still fit waits behind a request that came first and does not fit."""
    sizes = Rig()
    small, large = (size_class(sizes.layout(len(one)).size_bytes) for one in (SMALL, LARGE))
    sizes.close()
    rig = Rig(num_slots=1, budget_bytes=small + large)
    rig.submit(SMALL)
    rig.submit(SMALL)  # a small block is left of the budget, and room for another
    waiting = [rig.submit(LARGE), rig.submit(SMALL)]
    assert small * 3 <= small + large, "the last one would fit"
    assert [one.request.state for one in waiting] == [RequestState.WAITING] * 2
    rig.run()
    assert all(one.is_right for one in rig.asked)
    rig.close()


@pytest.fixture
def narrow() -> Iterator[Rig]:
    """A core in which one large request has a block and one more may wait for it."""
    probe = Rig()
    size_bytes = probe.layout(len(LARGE)).size_bytes
    probe.close()
    rig = Rig(num_slots=1, budget_bytes=size_class(size_bytes), max_waiting_bytes=size_bytes)
    rig.submit(LARGE)
    yield rig
    assert {one.num_ends for one in rig.asked} == {1}
    assert rig.line.num_waiting == 0
    rig.close()


def let_expire(rig: Rig) -> Asked:
    """A request whose deadline passes before there is a block, which is found when there is one."""
    late = rig.submit(LARGE, deadline=rig.clock() + 1e-6)
    while rig.blocks.num_leased:
        rig.device.step()
        rig.step()
    return late


def test_a_request_that_expires_as_its_turn_comes_is_told(narrow: Rig) -> None:
    """It ends though nothing else waits, and until then the core says that it has work."""
    late = let_expire(narrow)
    assert not narrow.scheduler.is_idle
    narrow.run()
    assert isinstance(late.errors[0], ExpiredError)
    assert narrow.metrics.read().drops["expired"] == 1


def test_its_caller_may_leave_before_it_is_told(narrow: Rig) -> None:
    """The cancellation ends it."""
    late = let_expire(narrow)
    narrow.scheduler.cancel(late.request)
    assert isinstance(late.errors[0], AbandonedError)
    narrow.run()


def test_closing_tells_it(narrow: Rig) -> None:
    """Shut-down ends what has expired and was not told yet."""
    late = let_expire(narrow)
    narrow.scheduler.close()
    assert late.num_ends == 1


def test_what_waited_makes_room_for_others_to_wait(narrow: Rig) -> None:
    """Served, cancelled or expired: its bytes count no more."""
    narrow.submit(LARGE)
    narrow.run()  # served
    narrow.submit(LARGE)
    narrow.scheduler.cancel(narrow.submit(LARGE).request)
    let_expire(narrow)
    narrow.run()
    narrow.submit(LARGE)
    assert narrow.submit(LARGE).request.state is RequestState.WAITING
    narrow.run()


def test_who_waits_for_a_block_of_a_failed_slot_is_told() -> None:
    """Its block never comes back: neither who waits for it nor who comes later is left waiting."""
    probe = Rig()
    size_bytes = probe.layout(len(LARGE)).size_bytes
    probe.close()
    rig = Rig(
        num_slots=1,
        budget_bytes=size_class(size_bytes),
        max_waiting_bytes=2 * size_bytes,
        stall_timeout_s=1.0,
    )
    stuck = rig.submit(LARGE)
    rig.step()
    waiting = rig.submit(LARGE)
    rig.scheduler.step(2.0)
    assert isinstance(stuck.errors[0], DeviceError)
    assert isinstance(waiting.errors[0], UnavailableError)
    with pytest.raises(UnavailableError, match="its slots have failed"):
        rig.submit(LARGE)
    assert rig.scheduler.is_idle


def test_memory_refused_while_waiting_costs_one_request_only() -> None:
    """A device that has no more memory to pin fails who asked for it, not the server."""
    rig = Rig(num_slots=1, budget_bytes=2 * 16_384)
    first = [rig.submit(bytes(4000)) for _ in range(2)]
    rig.step()  # both lanes have their memory
    waiting = rig.submit(bytes(9000))
    assert waiting.request.state is RequestState.WAITING
    rig.device.fail_alloc()
    rig.run()
    after = rig.submit(b"abc")
    rig.run()
    assert all(one.is_right for one in (*first, after))
    assert [type(error) for error in waiting.errors] == [DeviceError]
    rig.close()


def test_a_request_that_fits_no_more_is_told() -> None:
    """A failed slot keeps its blocks: who needs more than what is left must not wait for ever."""
    rig = Rig(num_slots=2, budget_bytes=4 * 16_384, stall_timeout_s=1.0)
    stuck = rig.submit(bytes(4000))
    rig.step()
    waiting = rig.submit(bytes(31_000))
    assert waiting.request.state is RequestState.WAITING
    rig.scheduler.step(2.0)
    rig.scheduler.step(2.1)
    assert isinstance(stuck.errors[0], DeviceError)
    assert [type(error) for error in waiting.errors] == [TooLargeError]
    assert rig.scheduler.is_idle
