"""When a batch should run under a latency target: as soon as its place is free, or later.

- With nothing else at work then: as soon as the place is free. A device is never idle while
  requests wait.
- Beside others: as soon as batches of this size keep up with what arrives; until then it grows, as
  long as who is due first would still be in time.
"""

from __future__ import annotations

from headrace.scheduling.places import Place, Places
from headrace.scheduling.waiting import Waiting
from headrace.slots.capacity import Capacity

KEEPS_UP = 1.2  # a size keeps up when it could do so many times what arrives


class Target:
    """The waiting rule of one model that has a latency target."""

    def __init__(self, capacity: Capacity, places: Places, lead_s: float) -> None:
        """Decide from what batches take and what arrives.

        Args:
            capacity: What batches take.
            places: What arrives.
            lead_s: How long before its begin a batch is bound to a lane.
        """
        self._capacity = capacity
        self._places = places
        self._lead_s = lead_s

    def ready_at(self, waiting: Waiting, most_rows: int, place: Place, now: float) -> float:
        """Return when who waits should run.

        Args:
            waiting: At least one request.
            most_rows: That may run together.
            place: Where they would run.
            now: Clock seconds.
        """
        capacity, (begin, together, _) = self._capacity, place
        rows = min(waiting.rows, most_rows)
        if rows == most_rows and waiting.first_due >= begin + capacity.most_s(rows, together):
            return now
        opens = max(begin - self._lead_s, now)
        if together == 1:
            return opens
        arriving = self._places.arrivals.rows_per_s(now)
        if rows * together >= KEEPS_UP * arriving * capacity.mean_s(rows, together):
            return opens
        grown = min(2 * rows, most_rows)
        return max(opens, waiting.first_due - capacity.most_s(grown, together) - self._lead_s)
