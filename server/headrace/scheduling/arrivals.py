"""How many rows a second arrive, now: the larger of two moving averages.

The slow one is steady, the fast one sees that a burst has begun. Both forget exponentially.
"""

from __future__ import annotations

from math import exp

TARGETS_AVERAGED = 2.0  # the slow one looks back over about so many latency targets
QUICKER = 8.0  # how many times faster the fast one forgets
CALMED = 0.9  # its noise makes the larger of the two too large by about as much


class ArrivalRate:
    """Rows a second of one model."""

    def __init__(self, target_s: float) -> None:
        """Start with none, for latencies of about `target_s`."""
        self._slow_per_s = 1.0 / (TARGETS_AVERAGED * target_s)
        self._fast_per_s = QUICKER * self._slow_per_s
        self._slow = 0.0
        self._fast = 0.0
        self._as_of = 0.0

    def come(self, rows: int, now: float) -> None:
        """Count rows that have just arrived."""
        passed_s = min(self._as_of - now, 0.0)  # threads read the clock before they take turns
        self._slow = self._slow * exp(passed_s * self._slow_per_s) + rows * self._slow_per_s
        self._fast = self._fast * exp(passed_s * self._fast_per_s) + rows * self._fast_per_s
        self._as_of = max(self._as_of, now)

    def rows_per_s(self, now: float) -> float:
        """Return the rate at this time."""
        passed_s = min(self._as_of - now, 0.0)
        slow = self._slow * exp(passed_s * self._slow_per_s)
        return max(slow, CALMED * self._fast * exp(passed_s * self._fast_per_s))
