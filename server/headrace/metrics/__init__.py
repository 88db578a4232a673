"""What is counted and timed: the scheduler records it, ModelStatistics and /metrics tell it."""

from __future__ import annotations

from headrace.metrics.histogram import BUCKETS_S, STAGES
from headrace.metrics.recorder import ModelMetrics
from headrace.metrics.registry import Metrics
from headrace.metrics.statistics import (
    DROP_REASONS,
    FAILURE_REASONS,
    BatchStatistics,
    DropReason,
    FailureReason,
    Statistics,
    Tally,
)

__all__ = [
    "BUCKETS_S",
    "DROP_REASONS",
    "FAILURE_REASONS",
    "STAGES",
    "BatchStatistics",
    "DropReason",
    "FailureReason",
    "Metrics",
    "ModelMetrics",
    "Statistics",
    "Tally",
]
