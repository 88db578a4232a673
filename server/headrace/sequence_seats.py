"""How many sequences of a model are served at a time, and what batches them."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Final

from headrace.engines.batching_spec import BatchingSpec
from headrace.engines.sequence_spec import SequenceSpec
from headrace.errors import ConfigError
from headrace.scheduling.batcher import Batcher
from headrace.scheduling.sequences import SequenceBatcher
from headrace.scheduling.states import States

log = logging.getLogger(__name__)

MAX_SEQUENCES: Final = 4096
"""Where the configuration does not say; without a state one takes about a kilobyte."""

MAX_STATE_BYTES: Final = 256 << 20
"""What the sequences of a model may carry by default, all together."""


@dataclass(frozen=True, slots=True)
class Seats:
    """The places for sequences of one model.

    Attributes:
        spec: How the model serves them.
        num_seats: How many carry state at a time.
        num_slots: Of the model.
    """

    spec: SequenceSpec
    num_seats: int
    num_slots: int

    def policy(self, batching: BatchingSpec) -> BatchingSpec:
        """Let any number of rows run that is worth waiting for, not the least alone."""
        if not self.spec.least_rows:
            return batching
        sizes = range(self.spec.least_rows, batching.max_rows + 1)
        return replace(batching, preferred_rows=tuple(sizes))

    def over(self, inner: Batcher, *, is_pinned: bool = False) -> SequenceBatcher:
        """Let `inner` batch requests whose turn it is, of all slots or of one that is pinned."""
        num_seats = self.num_seats
        return SequenceBatcher(
            inner,
            States(self.spec),
            idle_s=self.spec.idle_s,
            max_sequences=max(num_seats // self.num_slots, 1) if is_pinned else num_seats,
        )


def open_seats(model: str, spec: SequenceSpec, num_slots: int, max_state_bytes: int) -> Seats:
    """Decide how many sequences are served at a time, and say so in the log.

    As many for each slot as the configuration says (`oldest.max_candidate_sequences`), as far as
    their states fit.

    Raises:
        ConfigError: Not even one fits.
    """
    wanted = spec.max_candidates * num_slots or MAX_SEQUENCES
    fitting = max_state_bytes // spec.state_bytes if spec.state_bytes else wanted
    if not fitting:
        raise ConfigError(
            f"one sequence carries {spec.state_bytes} bytes, more than the {max_state_bytes} that "
            "all together may; raise --max-sequence-state-bytes",
            field="sequence_batching.state",
        )
    if spec.max_candidates and fitting < wanted:
        log.warning(
            "%s: %d sequences are served at a time instead of %d: more do not fit into "
            "--max-sequence-state-bytes",
            model,
            fitting,
            wanted,
        )
    seats = Seats(spec, min(wanted, fitting), num_slots)
    log.info(
        "%s: up to %d sequences at a time, %d bytes of state each; one ends when it is idle for "
        "%g s",
        model,
        seats.num_seats,
        spec.state_bytes,
        spec.idle_s,
    )
    return seats
