"""How many rows a second arrive, now: the larger of two moving averages.

The slow one is steady, the fast one sees that a burst has begun. Both forget exponentially.
"""

from __future__ import annotations

from math import exp

TARGETS_AVERAGED = 2.0  # the slow one looks back over about so many latency targets
QUICKER = 8.0  # how many times faster the fast one forgets
GRAIN = 1 / 16  # of what the fast one looks back over: what comes within counts as one
CALMED = 0.9  # its noise makes the larger of the two too large by about as much


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
