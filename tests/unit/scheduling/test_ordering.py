"""Replies leave in the order in which their requests came, and nothing stays behind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.engines.batching_spec import BatchingSpec
from headrace.errors import AbandonedError, DeviceError, EngineError, OverloadedError
from headrace.scheduling.ordering import Ordering
from headrace.scheduling.request import Request
from helpers.core_rig import Asked
from helpers.delay_batcher import DelayBatcher
from helpers.rows_rig import RowsRig

IN_ORDER = BatchingSpec(max_rows=1, preserve_ordering=True)


@given(st.data(), st.integers(0, 12))
def test_replies_leave_by_arrival(data: st.DataObject, count: int) -> None:
    """Whatever the order in which requests are answered, fail or are given up."""
    ordering = Ordering()
    requests = [cast("Request", object()) for _ in range(count)]
    for request in requests:
        ordering.come(request)
    left: list[Request] = []
    failed: set[Request] = set()
    for request in data.draw(st.permutations(requests)):
        if data.draw(st.booleans()):
            let_through = ordering.reply(request, [])
        else:
            failed.add(request)
            let_through = ordering.leave(request)
        left += [each for each, _ in let_through]
        assert len(ordering) == count - len(left) - len(failed)
    assert left == [request for request in requests if request not in failed]
    assert ordering.num_held == 0


def slow_first() -> RowsRig:
    """Four lanes, requests that run alone, and a first one that takes longest."""
    rig = RowsRig(IN_ORDER, num_slots=2, max_queue_size=4, launch_s=1.0)
    rig.ask(b"0")
    rig.step()
    rig.device.launch_s = 0.001
    return rig


@pytest.fixture
def rig() -> Iterator[RowsRig]:
    """Afterwards every request has ended once and every block is back."""
    rig = slow_first()
    yield rig
    rig.device.launch_s = 0.001
    rig.run()
    assert all(asked.num_ends == 1 for asked in rig.asked)
    assert rig.line.ordering is not None
    assert len(rig.line.ordering) == rig.line.ordering.num_held == 0
    assert rig.blocks.num_leased == 0
    rig.close()


def ended(rig: RowsRig) -> list[int]:
    return [index for index, asked in enumerate(rig.asked) if asked.num_ends]


def ask_and_run(rig: RowsRig, count: int) -> list[Asked]:
    """Ask behind the slow one and let all but that be done."""
    asked = [rig.ask(bytes([index])) for index in range(count)]
    for _ in range(20):
        rig.step()
        rig.device.run_until(rig.clock() + 0.002)
    return asked


def test_a_reply_waits_for_older_ones(rig: RowsRig) -> None:
    """In its block; then all leave at once, each with its own."""
    ask_and_run(rig, 3)
    assert rig.line.ordering is not None
    assert ended(rig) == []
    assert rig.line.ordering.num_held >= 1
    assert rig.blocks.num_leased == 4
    rig.run()
    assert all(asked.is_right for asked in rig.asked)


def test_held_replies_take_places_in_the_queue(rig: RowsRig) -> None:
    """So that what waits is bounded though lanes come free."""
    for _ in range(3):
        try:
            ask_and_run(rig, 4)
        except OverloadedError:
            rig.asked.pop()
            break
    else:
        pytest.fail("the queue never was full")
    assert rig.line.ordering is not None
    assert rig.line.ordering.num_held + rig.line.length == 4


@pytest.mark.parametrize("how", ["cancelled", "failed"])
def test_what_is_not_answered_holds_nothing_up(rig: RowsRig, how: str) -> None:
    """The oldest is given up by its caller, or fails: those behind it need not wait."""
    second, third = ask_and_run(rig, 2)
    if how == "cancelled":
        rig.scheduler.cancel(rig.asked[0].request)
        assert second.is_right
    else:
        rig.slots[0].in_flight[0].error = EngineError("no")
    rig.run()
    assert second.is_right
    assert third.is_right


def test_a_caller_that_leaves_while_its_reply_is_held(rig: RowsRig) -> None:
    """It ends at once, its block goes back, and those behind it wait for the older one only."""
    (second,) = ask_and_run(rig, 1)
    before = rig.blocks.num_leased
    rig.scheduler.cancel(second.request)
    assert [type(error) for error in second.errors] == [AbandonedError]
    assert rig.blocks.num_leased == before - 1
    assert rig.metrics.read().drops["cancelled"] == 1


def test_replies_that_are_held_leave_when_the_device_dies() -> None:
    """They are right; what was in flight ends with the error."""
    rig = slow_first()
    (second,) = ask_and_run(rig, 1)
    rig.scheduler.break_down(DeviceError("dead", sticky=True))
    assert second.is_right
    assert [type(error) for error in rig.asked[0].errors] == [DeviceError]
    assert rig.line.ordering is not None
    assert len(rig.line.ordering) == 0


def test_a_batch_is_counted_whoever_of_it_is_given_up(rig: RowsRig) -> None:
    """Its first reply is held, and its caller leaves: the next that leaves stands for the batch."""
    rig.line.batcher = together = DelayBatcher(3)
    asked = [rig.ask(bytes([index])) for index in range(1, 4)]
    rig.step()
    assert len(together) == 0
    rig.device.run_until(rig.clock() + 0.1)
    rig.step()
    assert rig.line.ordering is not None
    assert rig.line.ordering.num_held == 3
    rig.scheduler.cancel(asked[0].request)
    rig.run()
    assert [each.request.is_first for each in asked[1:]] == [True, False]
    assert {each.request.batch_rows for each in asked} == {3}


def test_a_reply_that_is_known_waits_for_older_ones_too(rig: RowsRig) -> None:
    """It leaves in its turn; its caller may leave before, and one too many is refused."""
    told: list[tuple[int, bool]] = []

    def on_end(request: Request, outputs: object, _: object) -> None:
        told.append((request.tag, outputs is not None))

    for index in range(4):
        known = rig.request(b"x").request
        known.tag, known.on_end = index, on_end
        rig.asked.pop()
        rig.scheduler.answer(known)
        if index == 2:
            rig.scheduler.cancel(known)
    assert told == [(2, False)]
    assert rig.line.has_work
    rig.scheduler.answer(rig.request(b"x").request)
    with pytest.raises(OverloadedError, match="Exceeds maximum queue size"):
        rig.scheduler.answer(rig.request(b"y").request)
    del rig.asked[1:]
    rig.run()
    assert told == [(2, False), (0, True), (1, True), (3, True)]
    assert rig.asked[0].is_right
