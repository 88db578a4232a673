"""A retired line takes nothing more; it is done with when everything that came has ended."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.engines.batching_spec import BatchingSpec
from headrace.errors import DeviceError, RetiredError, UnavailableError
from helpers.core_rig import Asked, Rig
from helpers.rows_rig import MAX_ROWS, RowsRig

RIGS: tuple[Callable[[], Rig], ...] = (
    Rig,
    RowsRig,
    lambda: RowsRig(BatchingSpec(max_rows=MAX_ROWS, preserve_ordering=True)),
)


def is_done(rig: Rig) -> bool:
    return rig.scheduler.is_done_with(rig.line)


@pytest.mark.parametrize("make", RIGS)
def test_what_is_in_is_served_and_what_comes_is_sent_on(make: Callable[[], Rig]) -> None:
    """The one who asked looks again: it is no failure, and counted nowhere."""
    rig = make()
    for _ in range(12):
        rig.submit(b"a")
    rig.step()
    rig.line.retire()
    with pytest.raises(RetiredError):
        rig.submit(b"b")
    late = rig.asked.pop()
    rig.run()
    assert all(asked.is_right for asked in rig.asked)
    assert late.num_ends == 0
    assert sum(rig.metrics.read().failures.values()) == 0
    rig.close()


@pytest.mark.parametrize("make", RIGS)
def test_it_is_not_done_with_before_the_last_caller_was_told(make: Callable[[], Rig]) -> None:
    """Queued, in flight, or answered and not yet told: closing its slots would be too early."""
    rig = make()
    for _ in range(12):
        rig.submit(b"a")
    rig.line.retire()
    while not all(asked.num_ends for asked in rig.asked):
        assert not is_done(rig)
        rig.device.step()
        rig.step()
    assert is_done(rig)
    rig.scheduler.remove_line(rig.line)
    rig.close()


def test_a_request_that_waits_for_a_block_keeps_its_line() -> None:
    """It was admitted, so it is served."""
    rig = Rig(budget_bytes=4096)
    rig.submit(b"a")
    waiting = rig.submit(b"b")
    rig.line.retire()
    assert rig.line.num_waiting == 1
    assert not is_done(rig)
    rig.run()
    assert waiting.is_right
    assert is_done(rig)
    rig.close()


def test_a_line_that_is_in_use_cannot_be_removed() -> None:
    """Its slots would be closed under the work in them."""
    rig = Rig()
    rig.submit(b"a")
    rig.step()
    rig.line.retire()
    with pytest.raises(AssertionError):
        rig.scheduler.remove_line(rig.line)
    rig.run()
    rig.close()


def test_what_waits_too_long_is_ended_and_what_is_in_flight_is_served() -> None:
    """When the drain has taken too long."""
    rig = Rig(num_slots=1)
    asked = [rig.submit(b"a") for _ in range(5)]
    rig.step()
    rig.line.retire()
    rig.scheduler.drop_waiting(rig.line, UnavailableError("unloaded"))
    rig.run()
    assert [one.is_right for one in asked] == [True, True, False, False, False]
    assert all(one.num_ends == 1 for one in asked)
    assert is_done(rig)
    rig.close()


def test_a_slot_that_stalls_does_not_keep_its_line_for_ever() -> None:
    """The poller gives it up, and then nothing is left of it."""
    rig = Rig(num_slots=1, stall_timeout_s=1.0)
    asked = rig.submit(b"a")
    rig.step()
    rig.line.retire()
    rig.scheduler.step(2.0)
    assert isinstance(asked.errors[0], DeviceError)
    assert is_done(rig)


@settings(max_examples=50, deadline=None)
@given(
    st.sampled_from(RIGS),
    st.lists(st.sampled_from(("submit", "step", "device", "cancel")), max_size=40),
    st.integers(0, 40),
)
def test_done_with_means_that_everybody_was_told(
    make: Callable[[], Rig], moves: list[str], retire_at: int
) -> None:
    """Whatever came before and after, and nobody who was taken in is told that it was retired."""
    rig = make()
    taken: list[Asked] = []
    for index, move in enumerate(moves):
        if index == retire_at:
            rig.line.retire()
        if move == "submit":
            try:
                taken.append(rig.submit(bytes([index])))
            except RetiredError:
                assert index >= retire_at
        elif move == "step":
            rig.step()
        elif move == "device":
            rig.device.step()
        elif taken and not taken[-1].num_ends:
            rig.scheduler.cancel(taken[-1].request)
        if is_done(rig):
            assert all(asked.num_ends == 1 for asked in taken)
    rig.line.retire()
    rig.run()
    assert is_done(rig)
    assert all(asked.num_ends == 1 for asked in taken)
    assert not any(isinstance(error, RetiredError) for asked in taken for error in asked.errors)
    rig.close()
