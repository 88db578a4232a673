"""A running estimate of a duration: its mean and how far it strays from it.

What TCP does for its round trips (RFC 6298): two moving averages, a handful of operations a sample.
"""

from __future__ import annotations

MEAN_GAIN = 1 / 8
SPREAD_GAIN = 1 / 4
NUM_SPREADS = 2.0  # how many spreads around the mean count as likely


class Estimate:
    """Mean and mean deviation of what was seen, the newest counting most; in seconds."""

    __slots__ = ("mean_s", "spread_s")

    def __init__(self, first_s: float) -> None:
        self.mean_s = first_s
        self.spread_s = first_s / 2  # wide until more is known

    def learn(self, seen_s: float) -> None:
        """Take one more sample in."""
        error_s = seen_s - self.mean_s
        self.mean_s += MEAN_GAIN * error_s
        self.spread_s += SPREAD_GAIN * (abs(error_s) - self.spread_s)

    @property
    def least_s(self) -> float:
        """What the next one will hardly fall below."""
        return max(self.mean_s - NUM_SPREADS * self.spread_s, 0.0)

    @property
    def most_s(self) -> float:
        """What the next one will hardly exceed."""
        return self.mean_s + NUM_SPREADS * self.spread_s
