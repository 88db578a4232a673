"""When a batch should run under a latency target: as soon as its place is free, or later.

- With nothing else at work then: as soon as the place is free, but for two cases in which an idle
  device waits, for as long as who is due first would still be in time (`Places.patience_s`).
  - Two batches do not fit into the target: who comes just after one has begun would be late, so
    rather all of them share one.
  - Those who usually follow the first are more than one batch after the other keeps up with, and
    will have filled a batch sooner than the time that a small one would waste.
- Beside others: as soon as batches of this size keep up with what arrives; until then it grows, as
  long as who is due first would still be in time.
"""

from __future__ import annotations

from math import inf

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
            patience_s = self._places.patience_s(rows, most_rows, self._lead_s, now)
            if patience_s < 0.0:
                return opens
            until = waiting.since + patience_s
        else:
            until = inf
            arriving = self._places.arrivals.rows_per_s(now)
            if rows * together >= KEEPS_UP * arriving * capacity.mean_s(rows, together):
                return opens
        takes_s = capacity.most_s(min(2 * rows, most_rows), together)
        return max(opens, min(until, waiting.first_due - takes_s - self._lead_s))
