"""What a batch takes by its number of rows: the capacity of a model, measured while it serves.

Rules
- Pure: it is told what ran and how long, and reads no clock.
- Rows are those that ran, padding included.
- Between two sizes that were seen, durations lie on the straight line between them. Beyond them
  they follow the line through the last two, but never outside of what a run with a fixed cost and a
  cost per row could take: no more than in proportion, and not less than the smaller size.
- Where nothing was seen yet every answer is 0.0: nothing is known.
- Batches that are at work together slow each other down, by a factor of their number alone. It is
  learnt apart from the sizes, so that what a size takes alone stays known under load.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable
from math import inf

from headrace.slots.estimate import NUM_SPREADS, Estimate

MAX_SIZES = 128  # more are not told apart: what is new then teaches the nearest that is known
UNSEEN_SHARE = 0.9  # what one more batch at work takes from the others, before it was seen
DOUBT = 1 / 16  # of the mean: how much wider the spread of what is not tried gets at a time
FORGET_AFTER = 1000  # batches of fewer at work, after which it is tried again what more together do
OUTLIER = 4.0  # a run counts as so many times the most that was likely: one pause is not a trend


class Capacity:
    """Service time by rows, in seconds, of one model on the slots that it has."""

    __slots__ = ("_ages", "_estimates", "_sizes", "_slowdowns")

    def __init__(self) -> None:
        self._estimates: dict[int, Estimate] = {}
        self._sizes: list[int] = []  # rising
        self._slowdowns: dict[int, Estimate] = {}  # by how many are at work together
        self._ages: dict[int, int] = {}  # batches of fewer that have run since

    def learn(self, rows: int, took_s: float, together: int = 1) -> None:
        """Take in that a batch of `rows` took `took_s`; what is no duration teaches nothing.

        Args:
            rows: That ran.
            took_s: From its start to its end.
            together: How many batches were at work when it began, itself included; 0 when nobody
                can tell, which teaches nothing either.
        """
        if not (0.0 < took_s < inf and together):
            return
        self._forget(together + 1)
        if together > 1 and self._sizes:
            self._learn_slowdown(together, took_s / self.mean_s(rows))
            return
        estimate = self._estimates.get(rows)
        if estimate is None and len(self._sizes) < MAX_SIZES:
            estimate = self._first(rows, took_s)
            self._estimates[rows] = estimate
            insort(self._sizes, rows)
            return
        if estimate is None:
            nearest = min(self._sizes, key=lambda size: abs(size - rows))
            estimate = self._estimates[nearest]
            took_s *= estimate.mean_s / self.mean_s(rows)
        estimate.learn(min(took_s, OUTLIER * estimate.most_s))

    def doubt(self, rows: int) -> None:
        """Trust what is known of a size a little less: it was not tried for what is known of it."""
        estimate = self._estimates.get(rows)
        if estimate is None and self._sizes:
            nearest = min(self._sizes, key=lambda size: abs(size - rows))
            estimate = self._estimates[nearest]
        if estimate is not None:
            estimate.spread_s = min(estimate.spread_s + DOUBT * estimate.mean_s, estimate.mean_s)

    def mean_s(self, rows: int, together: int = 1) -> float:
        """Return what a batch of so many rows takes; 0.0 when nothing is known."""
        estimate = self._estimates.get(rows)
        mean_s = self._between(rows, _mean) if estimate is None else estimate.mean_s
        return mean_s if together <= 1 else mean_s * self._slowdown(together).mean_s

    def most_s(self, rows: int, together: int = 1) -> float:
        """Return what it will hardly exceed; 0.0 when nothing is known."""
        estimate = self._estimates.get(rows)
        most_s = self._between(rows, _most) if estimate is None else estimate.most_s
        if together <= 1:
            return most_s
        slowdown = self._slowdown(together)
        strays_s = self.mean_s(rows) * (slowdown.most_s - slowdown.mean_s)
        return most_s * slowdown.mean_s + strays_s

    def least_s(self, rows: int) -> float:
        """Return what it will hardly fall below; 0.0 when nothing is known."""
        estimate = self._estimates.get(rows)
        return self._between(rows, _least) if estimate is None else estimate.least_s

    def has_seen(self, together: int) -> bool:
        """Whether it is known, not long ago, what so many at work together do to each other."""
        return together <= 1 or together in self._slowdowns

    def table(self) -> list[tuple[int, float]]:
        """Return (rows, mean seconds) of each size that was seen, by rising size."""
        return [(rows, self._estimates[rows].mean_s) for rows in self._sizes]

    def best_rows(self, max_rows: int, within_s: float = inf) -> int:
        """Return the size with the most rows per second that hardly takes longer than `within_s`.

        Returns:
            One of the sizes that were seen or `max_rows`, the smaller of equals; 0 when none is
            quick enough; `max_rows` when nothing is known.
        """
        if not self._sizes:
            return max_rows
        best, best_rate = 0, 0.0
        for rows in {*self._sizes[: bisect_left(self._sizes, max_rows)], max_rows}:
            rate = rows / self.mean_s(rows)
            if (rate, -rows) > (best_rate, -best) and self.most_s(rows) <= within_s:
                best, best_rate = rows, rate
        return best

    def _first(self, rows: int, took_s: float) -> Estimate:
        """Return what the first run of a size teaches; its neighbours know how far runs stray."""
        if not self._sizes:
            return Estimate(took_s)
        mean_s, most_s = self.mean_s(rows), self.most_s(rows)
        estimate = Estimate(min(took_s, OUTLIER * most_s))
        estimate.spread_s = (most_s / mean_s - 1.0) / NUM_SPREADS * estimate.mean_s
        return estimate

    def _forget(self, together: int) -> None:
        """Let go of what is known of so many at work when it was seen too long ago."""
        if together in self._slowdowns:
            self._ages[together] += 1
            if self._ages[together] >= FORGET_AFTER:
                del self._slowdowns[together]

    def _learn_slowdown(self, together: int, factor: float) -> None:
        self._ages[together] = 0
        estimate = self._slowdowns.get(together)
        if estimate is None:
            estimate = self._slowdowns[together] = Estimate(factor)
            estimate.spread_s = factor / 8
        else:
            estimate.learn(min(factor, OUTLIER * estimate.most_s))

    def _slowdown(self, together: int) -> Estimate:
        """Return how many times longer a batch takes among so many than alone."""
        estimate = self._slowdowns.get(together)
        if estimate is None:
            estimate = Estimate(self._unseen(together))
            estimate.spread_s = 0.0
        return estimate

    def _unseen(self, together: int) -> float:
        """Return what is thought of so many at work before it was seen."""
        fewer = self._slowdown(together - 1).mean_s if together > 2 else 1.0
        return fewer * (1.0 + UNSEEN_SHARE / (together - 1))

    def _between(self, rows: int, of: Callable[[Estimate], float]) -> float:
        """Read a duration off the lines between, before and behind the sizes that were seen."""
        sizes, estimates = self._sizes, self._estimates
        if not sizes:
            return 0.0
        index = bisect_left(sizes, rows)
        if index in {0, len(sizes)}:
            end = sizes[0 if index == 0 else -1]
            return of(estimates[end]) * self._growth(rows, end)
        low, high = sizes[index - 1], sizes[index]
        share = (rows - low) / (high - low)
        return (1.0 - share) * of(estimates[low]) + share * of(estimates[high])

    def _growth(self, rows: int, end: int) -> float:
        """Return what `rows` take, as a multiple of what `end` takes, the last size known there."""
        if len(self._sizes) == 1:
            return max(rows / end, 1.0)
        other = self._sizes[1 if rows < end else -2]
        end_s = self._estimates[end].mean_s
        slope_s = (end_s - self._estimates[other].mean_s) / (end - other)
        growth = 1.0 + slope_s * (rows - end) / end_s
        return min(max(growth, min(rows / end, 1.0)), max(rows / end, 1.0))


def _mean(estimate: Estimate) -> float:
    return estimate.mean_s


def _most(estimate: Estimate) -> float:
    return estimate.most_s


def _least(estimate: Estimate) -> float:
    return estimate.least_s
