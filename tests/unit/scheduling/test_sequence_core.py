"""Sequences through the whole core on the virtual device: what the bytes are, and who is told."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from headrace.errors import EngineError, UnavailableError
from headrace.link.local import LocalLink
from helpers.sequence_rig import WIDTH, SequenceRig, spec_of


@pytest.fixture(params=[False, True], ids=["copies", "unified"])
def rig(request: pytest.FixtureRequest) -> Iterator[SequenceRig]:
    """Two slots."""
    rig = SequenceRig(is_unified=request.param)
    yield rig
    rig.close()


def test_a_sequence_adds_up(rig: SequenceRig) -> None:
    """Sent at once, answered in order, each with what the ones before it left."""
    asked = [rig.ask(1, is_start=True), rig.ask(2), rig.ask(3), rig.ask(4, is_end=True)]
    rig.run()
    assert rig.sums(*asked) == [1, 3, 6, 10]
    assert rig.sequences.num_sequences == 0
    assert rig.blocks.num_leased == 0


def test_sequences_begin_with_the_initial_state() -> None:
    """Whatever lay in the block before, and again after each end."""
    rig = SequenceRig(spec=spec_of(initial=bytes([100] * WIDTH)))
    for _ in range(3):
        asked = [rig.ask(1, is_start=True), rig.ask(2, is_end=True)]
        rig.run()
        assert rig.sums(*asked) == [101, 103]
    rig.close()


def test_many_sequences_on_few_blocks_mix_nothing_up(rig: SequenceRig) -> None:
    """Each has its own sum, though blocks go from one to the other."""
    shuffled = random.Random(5)
    turns = [(each, number) for number in range(6) for each in range(6)]
    order = sorted(turns, key=lambda turn: (turn[1], shuffled.random()))
    asked = {turn: rig.ask(turn[0] + 1, turn[0] + 1, is_start=turn[1] == 0) for turn in order}
    rig.run()
    sums = {turn: rig.sums(each) for turn, each in asked.items()}
    assert sums == {(each, number): [(each + 1) * (number + 1)] for each, number in turns}


def test_a_run_that_fails_leaves_the_state_as_it_was() -> None:
    """The next request runs on what the last that succeeded left."""
    rig = SequenceRig(num_slots=1)
    first = rig.ask(1, is_start=True)
    rig.run()
    rig.contexts[0].error = EngineError("the run failed")
    failed, third = rig.ask(2), rig.ask(3)
    rig.run()
    assert rig.sums(first, failed, third) == [1, "EngineError", 4]
    rig.close()


def test_a_cancelled_request_leaves_the_state_as_it_was(rig: SequenceRig) -> None:
    """In flight, or waiting for its turn."""
    first, second, third = rig.ask(1, is_start=True), rig.ask(2), rig.ask(4)
    rig.step()
    rig.scheduler.cancel(second.request)
    rig.scheduler.cancel(first.request)
    rig.run()
    assert rig.sums(first, second, third) == ["AbandonedError", "AbandonedError", "RequestError"]
    begun = rig.ask(8, is_start=True)
    rig.run()
    lost = rig.ask(16)
    rig.step()
    rig.scheduler.cancel(lost.request)
    last = rig.ask(32, is_end=True)
    rig.run()
    assert rig.sums(begun, lost, last) == [8, "AbandonedError", 40]


def test_a_state_of_another_shape_is_an_error_of_the_model() -> None:
    """Nothing of it is kept, and the text says what came."""
    rig = SequenceRig(spec=spec_of(initial=bytes(WIDTH - 1)))
    asked = rig.ask(1, is_start=True)
    rig.run()
    assert rig.sums(asked) == ["EngineError"]
    text = f"came out with shape [{WIDTH}], but it went in with [{WIDTH - 1}]"
    assert text in str(asked.errors[0])
    assert rig.sequences.num_sequences == 0
    rig.close()


def test_a_slot_that_fails_ends_its_request_alone() -> None:
    """The sequence goes on, on another slot, from where it stood."""
    rig = SequenceRig(num_slots=2)
    first = rig.ask(1, is_start=True)
    rig.run()
    stuck, after = rig.ask(2), rig.ask(4)
    rig.step()
    (lane,) = [slot.in_flight[0] for slot in rig.slots if slot.in_flight]
    rig.poller.fault(lane.slot, EngineError("gone"))
    rig.scheduler._endings.take_out(lane)
    rig.run()
    assert rig.sums(first, stuck, after) == [1, "EngineError", 5]


def test_requests_without_a_part_are_refused(rig: SequenceRig) -> None:
    """Somebody other than the front door made them."""
    asked = rig.request(bytes(WIDTH))
    asked.request.tensors = (bytes(WIDTH), b"")
    rig.scheduler.submit(asked.request, rig.clock())
    assert "must specify a non-zero or non-empty correlation ID" in str(asked.errors[0])


def test_an_idle_sequence_ends_though_nothing_arrives(rig: SequenceRig) -> None:
    """The link asks to be stepped then, and not before; it is idle all the while."""
    link = LocalLink(rig.scheduler)
    rig.scheduler.remove_line(rig.line)
    link.add_line(rig.line)
    assert link.is_at_rest
    asked = rig.ask(1, is_start=True)
    rig.run()
    ended_at = rig.clock()
    assert asked.num_ends == 1
    assert (link.is_idle, link.is_at_rest) == (True, False)
    look = link.next_look(rig.clock())
    assert look is not None
    assert look <= ended_at + rig.spec.idle_s
    rig.device.run_until(look)
    link.step(look)
    assert rig.sequences.num_sequences == 0
    assert (link.is_at_rest, link.next_look(look)) == (True, None)


def test_what_waits_for_a_place_gets_it_when_another_is_idle() -> None:
    """Within the bound of the queue; it is answered without anything else arriving."""
    rig = SequenceRig(max_sequences=1)
    link = LocalLink(rig.scheduler)
    rig.scheduler.remove_line(rig.line)
    link.add_line(rig.line)
    first, second = rig.ask(1, "a", is_start=True), rig.ask(2, "b", is_start=True)
    for _ in range(200):
        link.step(rig.clock())
        if not rig.device.step():
            rig.device.run_until(rig.clock() + 0.01)
    assert rig.sums(first, second) == [1, 2]
    rig.close()


def test_a_version_that_is_unloaded_serves_what_is_in_and_ends_its_sequences(
    rig: SequenceRig,
) -> None:
    """Nothing waits for a sequence to end; the next request of one has to begin anew elsewhere."""
    asked = [rig.ask(1, is_start=True), rig.ask(2)]
    rig.line.retire()
    rig.run()
    assert rig.sums(*asked) == [1, 3]
    assert rig.scheduler.is_done_with(rig.line)
    with pytest.raises(UnavailableError, match="has been unloaded"):
        rig.ask(3)


def test_a_pinned_slot_has_sequences_of_its_own(rig: SequenceRig) -> None:
    """Who has it shares none with the others, and they end with it."""
    link = LocalLink(rig.scheduler)
    pinned = link.pin(rig.line)
    own = [rig.ask(1, is_start=True, line=pinned), rig.ask(2, line=pinned)]
    others = [rig.ask(5), rig.ask(10, is_start=True)]
    rig.run()
    assert rig.sums(*own, *others) == [1, 3, "RequestError", 10]
    link.unpin(rig.line, pinned)
    again = link.pin(rig.line)
    lost = rig.ask(4, line=again)
    rig.run()
    assert rig.sums(lost) == ["RequestError"]
