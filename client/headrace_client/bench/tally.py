"""What became of the requests of one level, folded row by row into counts of constant size.

Rules
- A request belongs to the measurement when it was *due* in it, so that each counts once and the
  slowest are not left out because they ended later.
- A rate counts what *ended* in the measurement, whenever it was due: what a backlog brings after
  the end is no throughput.
- An answer is good when it is OK and came within the deadline, from when its request was due.
"""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
from numpy.typing import NDArray

from headrace_client.bench.histogram import NUM_CLASSES, Histogram, classes_of
from headrace_client.bench.record import DROPPED, MAX_TEXTS, NUM_CODES, OK, Rows

_NUM_STEPS = 100  # points in a chart
_STEPS_S = (0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300)


def step_of(duration_s: float | None) -> float:
    """Return the length of a step of the time series, so that there are at most about 100."""
    wanted = 1.0 if duration_s is None else duration_s / _NUM_STEPS
    return next((step for step in _STEPS_S if step >= wanted * 0.999), _STEPS_S[-1])


class Steps:
    """What ended in each step of time from the measurement's start."""

    def __init__(self, step_s: float) -> None:
        self.step_s = step_s
        self.codes = np.zeros((0, NUM_CODES), np.int64)
        self.good = np.zeros(0, np.int64)
        self.latencies = np.zeros((0, NUM_CLASSES), np.int32)

    def add(
        self,
        since_s: NDArray[np.float64],
        codes: NDArray[np.uint8],
        is_good: NDArray[np.bool_],
        classes: NDArray[np.int64],
    ) -> None:
        """Count requests that ended so long after the start."""
        if not len(since_s):
            return
        steps = (since_s / self.step_s).astype(np.int64)
        self.extend(int(steps.max()) + 1)
        np.add.at(self.codes, (steps, codes), 1)
        np.add.at(self.good, steps[is_good], 1)
        is_ok = codes == OK
        np.add.at(self.latencies, (steps[is_ok], classes[is_ok]), 1)

    def extend(self, number: int) -> None:
        """Have at least so many steps."""
        missing = number - len(self.good)
        if missing > 0:
            self.codes = np.pad(self.codes, ((0, missing), (0, 0)))
            self.good = np.pad(self.good, (0, missing))
            self.latencies = np.pad(self.latencies, ((0, missing), (0, 0)))


class Tally:
    """Counts of one level.

    Args:
        start_s: When the measurement begins, on the clock of the rows.
        end_s: When it ends; None: with its last request.
        deadline_s: Of each request; None: every answer is good.
        num_sources: Who may send.
        is_open: The lag is that of the requests behind their schedule, else of the event loops.
        step_s: Of the time series.
    """

    def __init__(
        self,
        start_s: float,
        end_s: float | None,
        deadline_s: float | None,
        num_sources: int,
        *,
        is_open: bool,
        step_s: float = 1.0,
    ) -> None:
        self.is_open = is_open
        self.start_s = start_s
        self.end_s = math.inf if end_s is None else end_s
        self.deadline_s = math.inf if deadline_s is None else deadline_s
        self.last_s = start_s  # when the last one ended
        self.codes = np.zeros(NUM_CODES, np.int64)  # of what was due
        self.num_good = 0  # of what was due
        self.num_ended_ok = 0  # in the measurement
        self.num_ended_good = 0
        self.latency = Histogram()  # from due to the answer
        self.service = Histogram()  # from sent to the answer
        self.failure = Histogram()  # from sent to the error
        self.lag = Histogram()  # of the senders behind the schedule, or of their event loops
        self.texts: Counter[tuple[int, str]] = Counter()
        self.num_replies = 0  # with those of the warm-up
        self.reply_bytes = 0
        self.steps = Steps(step_s)
        self.source_latency = np.zeros((num_sources, NUM_CLASSES), np.int32)
        self.source_due = np.zeros(num_sources, np.int64)
        self.source_good = np.zeros(num_sources, np.int64)

    def add(self, rows: Rows) -> None:
        """Count these requests."""
        latency_s = rows.done_s - rows.due_s
        is_good = (rows.codes == OK) & (latency_s <= self.deadline_s)
        self._add_due(rows, latency_s, is_good)
        self.num_replies += int((rows.codes == OK).sum())
        self.reply_bytes += rows.reply_bytes
        ended = (rows.done_s >= self.start_s) & (rows.done_s < self.end_s)
        self.num_ended_ok += int((rows.codes[ended] == OK).sum())
        self.num_ended_good += int(is_good[ended].sum())
        self.steps.add(
            rows.done_s[ended] - self.start_s,
            rows.codes[ended],
            is_good[ended],
            classes_of(latency_s[ended]),
        )
        self.lag.add(rows.lags_s)
        self._add_texts(rows.texts)

    def _add_due(
        self, rows: Rows, latency_s: NDArray[np.float64], is_good: NDArray[np.bool_]
    ) -> None:
        due = (rows.due_s >= self.start_s) & (rows.due_s < self.end_s)
        codes = rows.codes[due]
        latency_s, service_s = latency_s[due], (rows.done_s - rows.sent_s)[due]
        is_ok, was_sent = codes == OK, codes != DROPPED
        self.codes += np.bincount(codes, minlength=NUM_CODES)
        self.num_good += int(is_good[due].sum())
        self.latency.add(latency_s[is_ok])
        self.service.add(service_s[is_ok])
        self.failure.add(service_s[~is_ok & was_sent])
        if self.is_open:
            self.lag.add(np.maximum((rows.sent_s - rows.due_s)[due], 0))
        sources, num = rows.sources[due], len(self.source_due)
        self.source_due += np.bincount(sources, minlength=num)
        self.source_good += np.bincount(sources[is_good[due]], minlength=num)
        np.add.at(self.source_latency, (sources[is_ok], classes_of(latency_s[is_ok])), 1)
        if due.any():
            self.last_s = max(self.last_s, float(rows.done_s[due].max()))

    def _add_texts(self, texts: Counter[tuple[int, str]]) -> None:
        for (code, text), count in texts.items():
            is_known = (code, text) in self.texts or len(self.texts) < MAX_TEXTS
            self.texts[code, text if is_known else "…"] += count
