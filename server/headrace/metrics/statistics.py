"""The figures of one model version at one moment, as ModelStatistics and /metrics tell them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, get_args

FailureReason = Literal["REJECTED", "CANCELED", "BACKEND", "OTHER"]
FAILURE_REASONS: Final[tuple[FailureReason, ...]] = get_args(FailureReason)
"""Triton's values of the label `reason` of nv_inference_request_failure."""

DropReason = Literal[
    "queue_full",
    "expired",  # its deadline passed
    "hopeless",  # its deadline could not be met any more
    "timeout",  # the queue policy's, or the request's own
    "target",  # headrace.target_p99_ms could not be met any more
    "superseded",  # by a fresher request of its source
    "displaced",  # its source had more than its share of a full queue
    "cancelled",
    "no_block",
    "shutdown",
]
DROP_REASONS: Final[tuple[DropReason, ...]] = get_args(DropReason)
"""Why a request ended before it cost device time: the label `reason` of headrace_dropped_total."""

TRITON_REASON: Final[dict[DropReason, FailureReason]] = {
    "queue_full": "REJECTED",
    "expired": "REJECTED",
    "hopeless": "REJECTED",
    "timeout": "REJECTED",
    "target": "REJECTED",
    "superseded": "REJECTED",
    "displaced": "REJECTED",
    "cancelled": "CANCELED",
    "no_block": "REJECTED",
    "shutdown": "REJECTED",
}


@dataclass(frozen=True, slots=True)
class Tally:
    """How often something happened, and how long all of it took together."""

    count: int = 0
    ns: int = 0


@dataclass(frozen=True, slots=True)
class BatchStatistics:
    """The executions of one batch size."""

    batch_size: int
    compute_input: Tally
    compute_infer: Tally
    compute_output: Tally


@dataclass(frozen=True, slots=True)
class Statistics:
    """Everything since the model was loaded; the three compute counts are always equal."""

    success: Tally = Tally()
    fail: Tally = Tally()
    queue: Tally = Tally()
    compute_input: Tally = Tally()
    compute_infer: Tally = Tally()
    compute_output: Tally = Tally()
    cache_hit: Tally = Tally()
    cache_miss: Tally = Tally()
    inference_count: int = 0  # rows
    execution_count: int = 0
    last_inference_ms: int = 0  # since the Unix epoch; 0 = none yet
    batch_stats: tuple[BatchStatistics, ...] = ()  # by rising batch size
