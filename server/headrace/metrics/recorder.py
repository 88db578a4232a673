"""Counts the requests of one model version; the scheduler calls it once for every request.

Rules
- `record` may be called from any thread, never waits and never allocates more than its sample.
- Samples lie in one list for life. Folding copies a prefix and then deletes that prefix; both are
  atomic, and recording only appends, so no sample is lost or counted twice. (Swapping the list for
  a fresh one would lose the sample of a thread that had already loaded the old one.)
- Folding happens under a lock, so that a snapshot is of one moment.
"""

from __future__ import annotations

import math
import threading
from array import array
from collections.abc import Callable, Sequence
from struct import Struct
from time import time
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.metrics.cache_tally import CacheTally
from headrace.metrics.histogram import STAGES, StageHistograms
from headrace.metrics.statistics import (
    DROP_REASONS,
    FAILURE_REASONS,
    TRITON_REASON,
    BatchStatistics,
    DropReason,
    FailureReason,
    Statistics,
    Tally,
)

FOLD_AT: Final = 512
"""Samples that wait to be folded. Folding 512 takes 0.18 ms; more at a time cost more each, because
they leave the cache, and the pause shows in a 99th percentile."""

CACHED: Final = -1
"""In the place of executions: the reply came from the response cache."""

_STAGE, _QUEUE, _H2D, _EXECUTE, _D2H, _REPLY, _TOTAL = range(1, len(STAGES))

# stages, rows, executions, rows of the batch (0 = the same rows), time of recording
_Sample = tuple[tuple[float, ...], int, int, int, float]
_PACK: Final = Struct(f"{len(STAGES)}d").pack
_NOT_REACHED: Final = (math.nan,) * (len(STAGES) - 2)  # stages between receiving and the total


class Reading(NamedTuple):
    """All that is told of a model version, of one moment."""

    statistics: Statistics
    failures: dict[FailureReason, int]
    drops: dict[DropReason, int]
    stages: list[tuple[list[int], float]]  # per stage: cumulative counts, sum in seconds


class ModelMetrics:
    """The counters of one model version.

    A request ends in one of `record`, `answered_from_cache`, `fail`, `dropped`.
    """

    def __init__(self, name: str, version: str) -> None:
        self.name = name
        self.version = version
        self._pending: list[_Sample] = []
        self._append: Callable[[_Sample], None] = self._pending.append
        self._fold_lock = threading.Lock()
        self._histograms = StageHistograms()
        self._num_success = 0
        self._num_rows = 0
        self._num_executions = 0
        self._num_cached = 0
        self._last_s = 0.0
        self._sums_ns = [
            0,
            0,
            0,
            0,
            0,
        ]  # total, queue, compute_input, compute_infer, compute_output
        self._batches: dict[int, list[int]] = {}  # rows -> [executions, input, infer, output ns]
        self._failure_lock = threading.Lock()  # its own: a refusal never waits for a fold
        self._failures = dict.fromkeys(FAILURE_REASONS, 0)
        self._drops = dict.fromkeys(DROP_REASONS, 0)
        self._failed_ns = 0
        self.cache = CacheTally()

    def record(
        self, stages: tuple[float, ...], rows: int, executions: int, batch_rows: int = 0
    ) -> None:
        """Count one answered request.

        Args:
            stages: Seconds in the order of `STAGES`; NaN where the device cannot measure it.
            rows: Rows of this request (1 when the model has no batch dimension).
            executions: 1 for one request of each batch, 0 for the others of it; CACHED for none.
            batch_rows: Rows of the whole batch, 0 when the request was alone in it.
        """
        self._append((stages, rows, executions, batch_rows, time()))
        if len(self._pending) >= FOLD_AT and self._fold_lock.acquire(blocking=False):
            try:
                self._fold()
            finally:
                self._fold_lock.release()

    def answered_from_cache(self, received_s: float, looked_up_s: float, total_s: float) -> None:
        """Count a request that was answered without running: a success, and no inference.

        Args:
            received_s: Until it was checked.
            looked_up_s: Of the look-up.
            total_s: From receiving to replying.
        """
        self.record((received_s, *_NOT_REACHED, total_s), 0, CACHED)
        self.cache.hit(looked_up_s)

    def fail(self, stages: tuple[float, ...] | None, reason: FailureReason) -> None:
        """Count a request that ended in an error; the stages it did not reach are NaN."""
        total_s = stages[_TOTAL] if stages else math.nan
        with self._failure_lock:
            self._failures[reason] += 1
            self._failed_ns += 0 if math.isnan(total_s) else round(total_s * 1e9)

    def dropped(self, reason: DropReason) -> None:
        """Count a request that ended before it cost device time: a failure in Triton's terms."""
        with self._failure_lock:
            self._drops[reason] += 1
            self._failures[TRITON_REASON[reason]] += 1

    def snapshot(self) -> Statistics:
        """Return the figures of this moment, everything recorded before the call included."""
        return self.read().statistics

    def read(self) -> Reading:
        """Return the figures of this moment with the histograms and the reasons of failures."""
        with self._fold_lock:
            self._fold()
            with self._failure_lock:
                failures, drops, failed_ns = (
                    dict(self._failures),
                    dict(self._drops),
                    self._failed_ns,
                )
            return Reading(
                self._statistics(Tally(sum(failures.values()), failed_ns)),
                failures,
                drops,
                self._histograms.cumulative(),
            )

    def _statistics(self, fail: Tally) -> Statistics:
        success, queue = (Tally(self._num_success, ns) for ns in self._sums_ns[:2])
        num_run = self._num_success - self._num_cached
        compute_input, compute_infer, compute_output = (
            Tally(num_run, ns) for ns in self._sums_ns[2:]
        )
        cache_hit, cache_miss = self.cache.read(self._num_cached)
        return Statistics(
            success=success,
            fail=fail,
            queue=queue,
            compute_input=compute_input,
            compute_infer=compute_infer,
            compute_output=compute_output,
            cache_hit=cache_hit,
            cache_miss=cache_miss,
            inference_count=self._num_rows,
            execution_count=self._num_executions,
            last_inference_ms=int(self._last_s * 1000),
            batch_stats=tuple(
                BatchStatistics(size, *(Tally(row[0], ns) for ns in row[1:]))
                for size, row in sorted(self._batches.items())
            ),
        )

    def _fold(self) -> None:
        """Move the pending samples into the totals; the caller holds `_fold_lock`."""
        num_samples = len(self._pending)
        if num_samples == 0:
            return
        samples = self._pending[:num_samples]
        del self._pending[:num_samples]
        stages, rows, executions, batch_rows, times_s = zip(*samples, strict=True)
        # Packing tuple by tuple is the fastest way into an array: half of numpy's own.
        packed = b"".join([_PACK(*each) for each in stages])
        took_s = self._histograms.fold(np.frombuffer(packed).reshape(num_samples, len(STAGES)))
        compute_s = np.stack(
            (
                took_s[:, _STAGE] + took_s[:, _H2D],
                took_s[:, _EXECUTE],
                took_s[:, _D2H] + took_s[:, _REPLY],
            )
        )  # (3, num_samples)
        self._num_success += num_samples
        self._num_rows += sum(rows)
        num_cached = executions.count(CACHED)
        self._num_cached += num_cached
        self._num_executions += sum(executions) - CACHED * num_cached
        self._last_s = max(self._last_s, *times_s)
        sums_s = (took_s[:, _TOTAL].sum(), took_s[:, _QUEUE].sum(), *compute_s.sum(axis=1))
        for index, sum_s in enumerate(sums_s):
            self._sums_ns[index] += round(float(sum_s) * 1e9)
        self._fold_batches(_array(rows), _array(executions), _array(batch_rows), compute_s)

    def _fold_batches(
        self,
        rows: NDArray[np.int64],  # (n,)
        executions: NDArray[np.int64],  # (n,)
        batch_rows: NDArray[np.int64],  # (n,)
        compute_s: NDArray[np.float64],  # (3, n)
    ) -> None:
        is_execution = executions > 0  # the others of a batch shared the same run
        batch_sizes = np.where(batch_rows > 0, batch_rows, rows)[is_execution]
        sizes, indices = np.unique(batch_sizes, return_inverse=True)
        counts = np.bincount(indices, executions[is_execution], len(sizes))
        sums_s = [np.bincount(indices, part, len(sizes)) for part in compute_s[:, is_execution]]
        for index, size in enumerate(sizes.tolist()):
            totals = self._batches.setdefault(size, [0, 0, 0, 0])
            totals[0] += int(counts[index])
            for column, part in enumerate(sums_s, start=1):
                totals[column] += round(float(part[index]) * 1e9)


def _array(counts: Sequence[int]) -> NDArray[np.int64]:
    return np.frombuffer(array("q", counts), np.int64)
