"""How many batches do well at work at once, and when the next has its place.

Slots that share a device slow each other down. Where one batch more does not raise what the device
does in time, the next is bound behind one that is at work, as if there were fewer slots, and grows
until then. What batches do to each other is learnt (`slots/capacity.py`), and tried where nobody
knows it and those at work cannot keep up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import NamedTuple

from headrace.scheduling.arrivals import ArrivalRate, Onset
from headrace.slots.capacity import Capacity

PAYS = 1.02  # one batch more at work must raise the rate so much: less is noise
USUAL_SLACK_S = 0.1  # what a request has, before any has said so
SLACK_GAIN = 1 / 16


class Place(NamedTuple):
    """Where the next batch would run."""

    begin: float  # clock seconds; infinity when there is no place until a batch has ended
    together: int  # how many are then at work, itself included
    is_behind: bool  # on the lane behind the work that ends first, though a slot is idle


class Places:
    """The places of one model's slots."""

    def __init__(
        self,
        capacity: Capacity,
        sizes: Sequence[int],
        *,
        num_busy: Callable[[], int],
        num_idle: Callable[[], int],
        ends_at: Callable[[float], float],
        target_s: float = 0.0,
    ) -> None:
        """Start without arrivals.

        Args:
            capacity: What batches take.
            sizes: That batches may have.
            num_busy: Says how many slots are at work.
            num_idle: Says how many are not, and could be.
            ends_at: Says when the first of them that has a free lane will have done what it has.
            target_s: What a request has until its answer; 0.0 for what their deadlines say.
        """
        self._capacity = capacity
        self._sizes = sizes
        self._num_busy = num_busy
        self._num_idle = num_idle
        self._ends_at = ends_at
        self._is_fixed = self._has_slack = target_s > 0.0
        self._slack_s = target_s or USUAL_SLACK_S
        self.arrivals = ArrivalRate(self._slack_s)
        self.onset = Onset()
        self._has_waited = False  # since the last batch no place was free when it was asked for
        self._rates: dict[int, float] = {}  # by how many are at work together
        self._patience_s: dict[tuple[int, int], float] = {}  # by the rows that wait, and the most
        self._renew_at = -inf

    def come(self, rows: int, slack_s: float, now: float, *, is_first: bool) -> None:
        """Count an arrival that has so long until it is due; `is_first` when nobody else waits."""
        self.arrivals.come(rows, now)
        onset = self.onset
        if now < onset.end:
            onset.rows += rows
        elif is_first and not self._num_busy():
            onset.begin(now, self._capacity.mean_s(rows))
        if not self._has_slack:
            self._has_slack, self._slack_s = True, slack_s
        elif not self._is_fixed:
            self._slack_s += SLACK_GAIN * (slack_s - self._slack_s)

    def plain(self, start: float, now: float) -> Place:
        """Return the place of a batch that takes the first slot that there is."""
        together = self._num_busy() + (self._num_idle() > 0)
        if start <= now:
            return Place(now, together or 1, False)
        return self._noted(Place(start, together or 1, is_behind=False), now)

    def best(self, start: float, now: float) -> Place:
        """Return the place where a batch does most; `start` is when the first slot is idle."""
        num_busy, is_any_idle = self._num_busy(), self._num_idle() > 0
        most = self._most(num_busy + is_any_idle, now)
        if num_busy > most:
            place = Place(inf, num_busy, is_behind=False)
        elif num_busy < most:
            place = Place(max(start, now), num_busy + 1, is_behind=False)
        elif is_any_idle:
            place = Place(max(self._ends_at(now), now), num_busy, is_behind=True)
        else:
            place = Place(max(start, now), num_busy, is_behind=False)
        return self._noted(place, now)

    def taught(self, place: Place) -> int:
        """Return how many are at work with a batch that goes now, where that says what they cost.

        A batch that began while another was half done is slowed down less than those which are
        always at work together: 0 for nobody can tell.
        """
        has_waited, self._has_waited = self._has_waited, False
        return place.together if place.together == 1 or has_waited else 0

    def _noted(self, place: Place, now: float) -> Place:
        self._has_waited = self._has_waited or place.begin > now
        return place

    def patience_s(self, rows: int, most_rows: int, lead_s: float, now: float) -> float:
        """Return how long a batch that is alone at work may grow, from when its oldest came.

        Args:
            rows: That wait.
            most_rows: That may run together.
            lead_s: How long before its begin a batch is bound.
            now: Clock seconds.

        Returns:
            Seconds; infinity for as long as nobody is made late, minus infinity for not at all.
        """
        if now >= self._renew_at:
            self._renew(now)
        key = rows, most_rows
        patience_s = self._patience_s.get(key)
        if patience_s is None:
            patience_s = self._patience_s[key] = self._worth_s(rows, most_rows, lead_s)
        return patience_s

    def _worth_s(self, rows: int, most_rows: int, lead_s: float) -> float:
        most_s, coming = self._capacity.most_s, self.onset.rows_per_s
        if most_s(rows) + lead_s + most_s(min(2 * rows, most_rows)) > self._slack_s:
            return inf  # who comes while it runs would be late
        best_rate = self._rate(1)
        if not 0.0 < best_rate < coming:
            return -inf  # the device has time to waste
        wasted_s = self._capacity.mean_s(rows) - rows / best_rate
        return most_rows / coming if (most_rows - rows) / coming < wasted_s else -inf

    def _renew(self, now: float) -> None:
        self._renew_at = now + self._slack_s
        self._rates.clear()
        self._patience_s.clear()

    def _most(self, limit: int, now: float) -> int:
        """Return how many at work do most in time, at most `limit`."""
        if now >= self._renew_at:
            self._renew(now)
        together = 1
        while together < limit and self._pays(together + 1, now):
            together += 1
        return together

    def _pays(self, together: int, now: float) -> bool:
        """Say whether so many at work do more in time than one less."""
        less, has_seen = self._rate(together - 1), self._capacity.has_seen
        if has_seen(together):
            return self._rate(together) > PAYS * less
        if not self._capacity.mean_s(1):
            return True  # nothing is known at all
        # It is tried when it is needed, one more at a time.
        return has_seen(together - 1) and 0.0 < less <= self.arrivals.rows_per_s(now)

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
                if took_s and took_s * (1.0 + 1.0 / together) <= self._slack_s:
                    rate = max(rate, together * size / took_s)
            self._rates[together] = rate
        return rate
