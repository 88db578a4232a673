"""Whether a request that has just come could be answered in time, so that it need not wait in vain.

Optimistic: whoever is refused would have been late, as far as anything is known. What is let in and
turns out to be late is dropped before it runs.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from headrace.scheduling.sizing import Sizing
from headrace.slots.capacity import Capacity

RENEWED_S = 0.1  # the pace is worked out anew so often


class Outlook:
    """Predicts when newcomers would be answered."""

    def __init__(self, sizing: Sizing, capacity: Capacity, num_busy: Callable[[], int]) -> None:
        """Predict from `capacity`; `num_busy` says how many slots are at work."""
        self._sizes = sizing.sizes
        self._capacity = capacity
        self._num_busy = num_busy
        self._most_busy = 1
        self._row_s = 0.0  # at the best pace
        self._renew_at = -inf

    def done_at(self, start: float, rows_ahead: float, rows: int, now: float) -> float:
        """Return when `rows` that come now would be done, at the earliest.

        Args:
            start: When the next batch begins, in clock seconds.
            rows_ahead: That run before them.
            rows: Theirs.
            now: Clock seconds.
        """
        if now >= self._renew_at:
            self._renew_at = now + RENEWED_S
            self._row_s = self._best_row_s()
        return start + rows_ahead * self._row_s + self._capacity.least_s(rows)

    def _best_row_s(self) -> float:
        """Return the time of a row at the size and number of batches that do most; 0.0 unknown."""
        self._most_busy = max(self._most_busy, self._num_busy())
        return min(
            self._capacity.mean_s(size, together) / (together * size)
            for together in range(1, self._most_busy + 1)
            for size in self._sizes
        )
