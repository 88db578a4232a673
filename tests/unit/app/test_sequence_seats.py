"""How many sequences of a model are served at a time."""

from __future__ import annotations

import logging

import pytest

from headrace.engines.batching_spec import BatchingSpec
from headrace.engines.sequence_spec import SequenceSpec, State
from headrace.errors import ConfigError
from headrace.scheduling.batcher import SingleBatcher
from headrace.sequence_seats import MAX_SEQUENCES, open_seats


def spec_of(state_bytes: int = 1000, candidates: int = 0, least_rows: int = 0) -> SequenceSpec:
    state = State(0, 0, "s", "UINT8", (state_bytes,), bytes(state_bytes))
    states = (state,) if state_bytes else ()
    return SequenceSpec(1.0, candidates, True, least_rows, (), states)


@pytest.mark.parametrize(
    ("spec", "max_bytes", "num_seats"),
    [
        (spec_of(), 1 << 30, MAX_SEQUENCES),
        (spec_of(0), 1024, MAX_SEQUENCES),
        (spec_of(), 5000, 5),
        (spec_of(candidates=3), 1 << 30, 6),  # for each of two slots
        (spec_of(candidates=3), 4999, 4),
    ],
)
def test_as_many_as_are_asked_for_and_fit(
    spec: SequenceSpec, max_bytes: int, num_seats: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Who asked for more is warned; the log says what it is."""
    with caplog.at_level(logging.INFO):
        seats = open_seats("m", spec, 2, max_bytes)
    assert seats.num_seats == num_seats
    assert f"m: up to {num_seats} sequences at a time" in caplog.text
    is_cut = spec.max_candidates > 0 and num_seats < 2 * spec.max_candidates
    assert ("instead of 6" in caplog.text) is is_cut


def test_one_must_fit() -> None:
    """Else the model is not served."""
    with pytest.raises(
        ConfigError, match=r"carries 1000 bytes, more than the 999 .*raise --max-seq"
    ):
        open_seats("m", spec_of(), 1, 999)


def test_a_pinned_slot_has_its_share() -> None:
    """So that all of them together have as many at most; one at least."""
    seats = open_seats("m", spec_of(), 4, 9000)
    assert seats.over(SingleBatcher())._max_sequences == 9
    assert seats.over(SingleBatcher(), is_pinned=True)._max_sequences == 2
    few = open_seats("m", spec_of(), 4, 1000)
    assert few.over(SingleBatcher(), is_pinned=True)._max_sequences == 1


def test_rows_worth_waiting_for_let_all_run_that_wait() -> None:
    """Not the least number alone."""
    batching = BatchingSpec(max_rows=8, max_delay_s=0.001)
    assert open_seats("m", spec_of(), 1, 9000).policy(batching) == batching
    policy = open_seats("m", spec_of(least_rows=6), 1, 9000).policy(batching)
    assert policy.preferred_rows == (6, 7, 8)
