"""When a batch should run under a latency target: at once, later, or after those at work.

- Nothing else at work: as soon as the slot is free. A device is never idle while requests wait.
- Others at work, and one batch more would not raise what the device does in a second, at any size
  that is quick enough: when one of them has ended. The batch grows meanwhile.
- Others at work otherwise: as soon as batches of this size keep up with what arrives; until then it
  grows, as long as who is due first would still be in time.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from headrace.scheduling.arrivals import ArrivalRate
from headrace.scheduling.sizing import Sizing
from headrace.scheduling.waiting import Waiting
from headrace.slots.capacity import Capacity

PAYS = 1.02  # one batch more at work must raise the rate so much: less is noise
KEEPS_UP = 1.2  # a size keeps up when it could do so many times what arrives
RENEWED_TARGETS = 1.0  # what can be done in time is worked out anew after so many latency targets


class Target:
    """The waiting rule of one model that has a latency target."""

    def __init__(
        self,
        target_s: float,
        lead_s: float,
        sizing: Sizing,
        capacity: Capacity,
        num_busy: Callable[[], int],
    ) -> None:
        """Start without arrivals.

        Args:
            target_s: From a request's arrival to its answer.
            lead_s: How long before its start a batch is bound to a lane.
            sizing: The sizes that there are.
            capacity: What they take.
            num_busy: Says how many slots are at work.
        """
        self.target_s = target_s
        self.arrivals = ArrivalRate(target_s)
        self.is_held = False  # the last answer was to wait until a batch has ended
        self._lead_s = lead_s
        self._sizes = sizing.sizes
        self._capacity = capacity
        self._num_busy = num_busy
        self._rates: dict[int, float] = {}  # by how many are at work together
        self._renew_at = -inf

    def ready_at(self, waiting: Waiting, most_rows: int, start: float, now: float) -> float:
        """Return when who waits should run; infinity for when a batch has ended.

        Args:
            waiting: At least one request.
            most_rows: That may run together.
            start: When a batch that is enqueued now would begin; past when a slot is idle.
            now: Clock seconds.
        """
        capacity = self._capacity
        is_early = start > now
        together = self._num_busy() + (not is_early)
        rows = min(waiting.rows, most_rows)
        if together > 1 and not self._pays(together, now):
            self.is_held = True
            return inf
        is_full = rows == most_rows
        if is_full and waiting.first_due >= max(start, now) + capacity.most_s(rows, together):
            return now
        opens = start - self._lead_s if is_early else now
        if together <= 1:
            return opens
        needed = KEEPS_UP * self.arrivals.rows_per_s(now) * capacity.mean_s(rows, together)
        if rows * together >= needed:
            return opens
        grown = min(2 * rows, most_rows)
        return max(opens, waiting.first_due - capacity.most_s(grown, together) - self._lead_s)

    def taught(self, together: int, *, is_early: bool) -> int:
        """Return how many are at work beside a batch that goes now, where that says what they cost.

        A batch that began while another was half done is slowed down less than those which are
        always at work together: 0 for nobody can tell.
        """
        is_held, self.is_held = self.is_held, False
        return together if is_early or is_held or together == 1 else 0

    def _pays(self, together: int, now: float) -> bool:
        """Say whether so many at work do more in time than one less."""
        if now >= self._renew_at:
            self._renew_at = now + RENEWED_TARGETS * self.target_s
            self._rates.clear()
        less, has_seen = self._rate(together - 1), self._capacity.has_seen
        if not has_seen(together):  # it is tried when it is needed, one more at a time
            return has_seen(together - 1) and self.arrivals.rows_per_s(now) > less
        return self._rate(together) >= PAYS * less

    def _rate(self, together: int) -> float:
        """Return the most rows a second of so many batches at work together.

        Only sizes count that are quick enough: a request may have to wait for one of those at work
        and then for its own.
        """
        rate = self._rates.get(together)
        if rate is None:
            rate, mean_s = 0.0, self._capacity.mean_s
            for size in self._sizes:
                took_s = mean_s(size, together)
                if took_s and took_s * (1.0 + 1.0 / together) <= self.target_s:
                    rate = max(rate, together * size / took_s)
            self._rates[together] = rate
        return rate
