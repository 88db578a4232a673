"""How many rows run together when time is short: the most answers in time per second.

A larger batch does more rows a second, and ends later. Who would get the answer too late from a
batch of some size does not count for that size and does not run in it. So batches stay as large as
pays under overload, where to serve the tightest first would take ever smaller ones. (Nexus, SOSP
2019, drops early for the same reason; Clockwork, OSDI 2020, plans with measured times as we do.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import NamedTuple

from headrace.scheduling.waiting import Waiting
from headrace.slots.capacity import Capacity

NEARLY = 0.98  # rates that differ by less are alike: such a difference is noise


class Choice(NamedTuple):
    """What runs: at most so many rows, of those that are due at `limit` or later."""

    rows: int
    limit: float = -inf


def sizes_up_to(max_rows: int, preferred: Sequence[int] = ()) -> tuple[int, ...]:
    """Return the sizes that are weighed: powers of two, halfway between, and what is preferred."""
    sizes = {max_rows, *(rows for rows in preferred if rows <= max_rows)}
    rows = 1
    while rows < max_rows:
        sizes |= {rows, min(rows + rows // 2, max_rows)}
        rows *= 2
    return tuple(sorted(sizes))


class Sizing:
    """Weighs the sizes that a model's batches may have."""

    def __init__(self, max_rows: int, preferred: Sequence[int], capacity: Capacity) -> None:
        """Weigh sizes up to `max_rows` by what `capacity` says that they take."""
        self.sizes = sizes_up_to(max_rows, preferred)
        self._capacity = capacity

    def enough(self, rows: int, together: int) -> int:
        """Return how many of so many rows run where all of them are in time.

        The smallest size that does nearly as many rows a second as the best one: what is left ends
        no later than it would with the others, and the first end earlier. A larger one than half
        would leave fewer than it takes, for which that does not hold.
        """
        mean_s, enough = self._capacity.mean_s, rows
        best_rate = rows / (mean_s(rows, together) or 1.0)
        for size in reversed(self.sizes):
            if 2 * size <= rows:
                rate = size / (mean_s(size, together) or 1.0)
                if rate < NEARLY * best_rate:
                    break
                best_rate, enough = max(rate, best_rate), size
        return enough

    def choose(self, waiting: Waiting, most_rows: int, start: float, together: int) -> Choice:
        """Return what should run of who waits.

        Args:
            waiting: At least one request.
            most_rows: That may run together.
            start: When the batch begins, in clock seconds.
            together: How many batches are then at work, this one included.
        """
        capacity, rows = self._capacity, min(waiting.rows, most_rows)
        sizes = [size for size in self.sizes if size < rows] + [rows]
        # Of a smaller size less may be known, so that it might take longer than a larger one.
        longest_s = max([capacity.most_s(size, together) for size in sizes])
        tight = waiting.due_before(start + longest_s)
        if not tight or tight[0][0] > start + capacity.most_s(rows, together):
            return Choice(most_rows)
        loose = waiting.rows - sum(its for _, its in tight)

        def most_in_time(takes_s: Callable[[int, int], float]) -> Choice | None:
            best, best_rate = None, 0.0
            for size in sizes:
                limit = start + takes_s(size, together)
                in_time = min(loose + sum([its for due, its in tight if due >= limit]), size)
                rate = in_time / (capacity.mean_s(in_time) or 1.0)
                if rate > best_rate:
                    best, best_rate = Choice(size, limit), rate
            return best

        # Where nothing is sure to be in time, what is likely to be; else the first, as a trial.
        return most_in_time(capacity.most_s) or most_in_time(capacity.mean_s) or Choice(1)
