"""How many rows a second arrive: now, and usually after one that finds nothing before it.

Now is the larger of two moving averages. The slow one is steady, the fast one sees that a burst has
begun. Both forget exponentially. What follows the first of a burst cannot be seen by then: it is
known from those before.
"""

from __future__ import annotations

from math import exp, inf

TARGETS_AVERAGED = 2.0  # the slow one looks back over about so many latency targets
QUICKER = 8.0  # how many times faster the fast one forgets
GRAIN = 1 / 16  # of what the fast one looks back over: what comes within counts as one
CALMED = 0.9  # its noise makes the larger of the two too large by about as much
ONSET_GAIN = 1 / 8  # of what followed one such request, in what is thought to follow the next


class ArrivalRate:
    """Rows a second of one model."""

    def __init__(self, target_s: float) -> None:
        """Start with none, for latencies of about `target_s`."""
        self._slow_per_s = 1.0 / (TARGETS_AVERAGED * target_s)
        self._fast_per_s = QUICKER * self._slow_per_s
        self._grain_s = GRAIN / self._fast_per_s
        self._slow = 0.0
        self._fast = 0.0
        self._as_of = 0.0
        self._fresh = 0  # rows that have come since: they count as of then

    def come(self, rows: int, now: float) -> None:
        """Count rows that have just arrived."""
        if now - self._as_of > self._grain_s:
            self._slow, self._fast = self._at(now)
            self._as_of, self._fresh = now, 0
        self._fresh += rows

    def rows_per_s(self, now: float) -> float:
        """Return the rate at this time."""
        slow, fast = self._at(now)
        return max(slow, CALMED * fast)

    def _at(self, now: float) -> tuple[float, float]:
        passed_s = max(now - self._as_of, 0.0)  # threads read the clock before they take turns
        slow = self._slow + self._fresh * self._slow_per_s
        fast = self._fast + self._fresh * self._fast_per_s
        return slow * exp(-passed_s * self._slow_per_s), fast * exp(-passed_s * self._fast_per_s)


class Onset:
    """Rows a second that follow a request which found nothing waiting and nothing at work.

    Attributes:
        rows_per_s: What is thought to follow the next one.
        end: Until when those count that follow the last one.
        rows: How many have come since.
    """

    __slots__ = ("_begin", "_has_seen", "end", "rows", "rows_per_s")

    def __init__(self) -> None:
        """Start without any."""
        self.rows_per_s = 0.0
        self._has_seen = False
        self._begin = self.end = -inf
        self.rows = 0

    def begin(self, now: float, during_s: float) -> None:
        """Take in what followed the last one; another comes now, who keeps the model so long."""
        if self.end > self._begin:
            seen_per_s = self.rows / (self.end - self._begin)
            gain = ONSET_GAIN if self._has_seen else 1.0
            self.rows_per_s += gain * (seen_per_s - self.rows_per_s)
            self._has_seen = True
        self._begin, self.end, self.rows = now, now + during_s, 0
