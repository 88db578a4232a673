"""Dynamic batching: requests of one kind run together, when they are enough or have waited enough.

Rules
- A batch is bound to a lane late: while every slot is busy, one that is not full stays open until
  shortly before the first of them comes free. A full one goes at once, unless a newcomer might go
  before one of it: what is bound is beyond all fairness.
- A slot that is idle waits for company only as long as `max_delay_s` lets it; under a latency
  target as `target.py` says.
- Requests that cannot share a batch (no kind) run alone, in their turn.
- What cannot be answered in time any more, by what batches were seen to take, is dropped.
- Where replies keep the order of requests, requests run in order of arrival, whoever they are of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf

from headrace.engines.base import Kind
from headrace.engines.batching_spec import BatchingSpec
from headrace.scheduling.batcher import Drop, Helps, anyway
from headrace.scheduling.intake import Intake
from headrace.scheduling.outlook import Outlook
from headrace.scheduling.places import Place, Places
from headrace.scheduling.request import Request
from headrace.scheduling.sizing import Choice, Sizing
from headrace.scheduling.target import Target
from headrace.scheduling.waiting import Waiting
from headrace.slots.batch import Batch
from headrace.slots.capacity import Capacity

LEAD_S = 0.5e-3  # a batch is bound so long before its slot is free: to copy it takes about that
FORECAST = ("hopeless", "target")  # drops for what was expected, not for what is
MAX_KINDS = 32  # kinds that are looked at for a batch; of more, those served longest ago


class DynamicBatcher:
    """The policy of one model's queue."""

    def __init__(
        self,
        spec: BatchingSpec,
        capacity: Capacity,
        starts_at: Callable[[float], float],
        default_max_queue_size: int,
        *,
        num_busy: Callable[[], int] = lambda: 0,
        num_idle: Callable[[], int] = lambda: 1,
        ends_at: Callable[[float], float] = lambda _: inf,
    ) -> None:
        """Start empty.

        Args:
            spec: What the model's configuration says.
            capacity: What batches take, by their rows.
            starts_at: Says when a batch that is enqueued now would begin to run, in clock seconds.
            default_max_queue_size: Requests of a priority that may wait, where `spec` does not say.
            num_busy: Says how many slots have work in flight.
            num_idle: Says how many have none, and could take some.
            ends_at: Says when the first of them that has a free lane will have done what it has.
        """
        self._spec = spec
        self._capacity = capacity
        self._starts_at = starts_at
        self._num_busy = num_busy
        self._sizing = Sizing(spec.max_rows, spec.preferred_rows, capacity)
        self._outlook = Outlook(self._sizing, capacity, num_busy)
        self._intake = Intake(spec, default_max_queue_size)
        self._kinds = self._intake.kinds
        self.dropped = self._intake.dropped
        self._look_at: float | None = None
        sizes = self._sizing.sizes
        self._places = Places(
            *(capacity, sizes),
            num_busy=num_busy,
            num_idle=num_idle,
            ends_at=ends_at,
            target_s=spec.target_p99_s,
        )
        self._has_target = self._waits_by_target = spec.target_p99_s > 0.0
        self._target = Target(capacity, self._places, LEAD_S)

    def __len__(self) -> int:
        return self._kinds.num_requests

    def refuse(self, request: Request, now: float) -> Drop | None:
        """Say why a request that has just come shall not be queued; None when it may be."""
        intake, kinds = self._intake, self._kinds
        if kinds.num_requests >= intake.least_queue_size:
            drop = intake.full(request)
            if drop is not None:
                return drop
        if not self._has_target and request.deadline is None:
            return None
        drop = intake.late(request, max(self._starts_at(now), now), self._outlook, now)
        if drop is not None and not self._kinds.num_requests:
            self._doubt((drop,), request.rows)
        return drop

    def displace(self, request: Request, helps: Helps = anyway) -> Drop | None:
        """Take out what must make room for a request of another source; None when nothing must."""
        return self._intake.displace(request, helps)

    def add(self, request: Request, now: float) -> None:
        """Queue a request whose inputs lie in its block; what it supersedes is dropped."""
        if self._has_target or request.deadline is not None:
            slack_s = 0.0 if request.deadline is None else request.deadline - request.received_at
            is_first = not self._kinds.num_requests
            self._places.come(request.rows, slack_s, now, is_first=is_first)
        self._intake.add(request, now)

    def remove(self, request: Request) -> bool:
        """Take a request out again; False when it is not queued any more."""
        return self._kinds.remove(request)

    def next_batch(self, now: float) -> Batch[Request] | None:
        """Return what should run now, None when nothing should."""
        self._look_at = None
        if self._intake.has_timeouts:
            self._intake.time_out(now)
        while self._kinds.num_requests:
            place = self._place(self._starts_at(now), now)
            ready = self._ready(place, now)
            if not ready:
                return None
            batch = self._form(ready, place, now)
            if batch is not None:
                return batch
        return None

    def next_look(self, now: float) -> float | None:  # noqa: ARG002 -- the last answer holds
        """Return when `next_batch` may answer anew though nothing arrives; None for never."""
        return self._look_at

    def expire(self, now: float) -> None:
        """Move what has waited too long, or cannot be answered in time any more, to `dropped`."""
        if self._intake.has_timeouts:
            self._intake.time_out(now)
        if self._intake.is_pressed:
            start = max(self._starts_at(now), now)
            for kind in list(self._kinds.by_kind):
                self._give_up(kind, start, now)

    def hurry(self) -> None:
        """Wait for no company from now on: nothing more will come."""
        self._spec, self._waits_by_target = replace(self._spec, max_delay_s=0.0), False

    def clear(self) -> list[Request]:
        """Take every queued request out."""
        return self._kinds.clear()

    # --- when -------------------------------------------------------------------------------------

    def _place(self, start: float, now: float) -> Place:
        """Return where the next batch would run, if the first slot is idle from `start` on."""
        place = self._places.plain(start, now)
        if not self._intake.is_pressed or place.together == 1:
            return place
        if not self._has_target:  # deadlines alone: only where the others would make it late
            rows = min(self._spec.max_rows, self._kinds.rows)
            takes_s = self._capacity.most_s(rows, place.together)
            waiting = self._kinds.by_kind.values()
            if min(each.first_due for each in waiting) > place.begin + takes_s:
                return place
        return self._places.best(start, now)

    def _ready(self, place: Place, now: float) -> list[Kind | None]:
        """Return the kinds that should run now; if there are none, note when to look again."""
        ready: list[Kind | None] = []
        look_at = inf
        for kind, waiting in self._kinds.by_kind.items() if place.begin < inf else ():
            at = self._ready_at(kind, waiting, place, now)
            if at <= now:
                ready.append(kind)
                if len(ready) == MAX_KINDS:
                    break
            elif at < look_at:
                look_at = at
        if not ready and look_at < inf:
            self._look_at = look_at
        return ready

    def _ready_at(self, kind: Kind | None, waiting: Waiting, place: Place, now: float) -> float:
        spec, begin, is_pressed = self._spec, place.begin, self._intake.is_pressed
        has_delay = spec.max_delay_s > 0.0
        if kind is None or (begin <= now and not (has_delay or self._waits_by_target)):
            return max(begin - LEAD_S, now) if is_pressed or self._intake.is_ranked else now
        most_rows = self._most_rows(kind)
        if self._waits_by_target:
            return self._target.ready_at(waiting, most_rows, place, now)
        rows, at = waiting.rows, now
        if rows >= most_rows:
            if not self._intake.is_ranked and (
                not is_pressed or self._is_in_time(waiting, most_rows, place)
            ):
                return now
        elif has_delay and not self._is_preferred(rows) and not waiting.has_late:
            at = waiting.since + spec.max_delay_s
            if is_pressed and at > now:
                grown = min(2 * rows, most_rows)
                takes_s = self._capacity.most_s(grown, place.together)
                at = min(at, waiting.first_due - takes_s - LEAD_S)
        return max(at, begin - LEAD_S) if begin > now else at

    def _is_in_time(self, waiting: Waiting, rows: int, place: Place) -> bool:
        """Whether everybody would be in time in a batch of so many rows."""
        return waiting.first_due > place.begin + self._capacity.most_s(rows, place.together)

    def _is_preferred(self, rows: int) -> bool:
        preferred = self._spec.preferred_rows
        return bool(preferred) and rows >= preferred[0]

    # --- what -------------------------------------------------------------------------------------

    def _form(self, ready: list[Kind | None], place: Place, now: float) -> Batch[Request] | None:
        """Take the next batch of these kinds out; None when who was next had to be dropped."""
        kinds = self._kinds
        kind, level = (ready[0], None) if len(ready) == 1 else kinds.first(ready)
        waiting = kinds.by_kind[kind]
        most, limit = 0 if kind is None else self._size(kind, waiting, now), -inf
        if self._intake.is_pressed:
            choice = self._in_time(kind, most, place, now)
            if choice is None:
                return None
            most, limit = choice
        rows = waiting.rows
        requests = kinds.take(kind, most, limit, level)
        rows -= waiting.rows
        layout = requests[0].layout if kind is None else kind.layout(rows)  # perhaps padded
        return Batch(requests, layout, rows, self._places.taught(place), place.is_behind)

    def _size(self, kind: Kind, waiting: Waiting, now: float) -> int:
        """Return how many rows run: a preferred size while those that are left may wait."""
        spec = self._spec
        rows, most = waiting.rows, self._most_rows(kind)
        if not spec.preferred_rows or rows >= most or now >= waiting.since + spec.max_delay_s:
            return most
        return max((size for size in spec.preferred_rows if size <= rows), default=most)

    def _most_rows(self, kind: Kind) -> int:
        """Return the most that the policy lets run together, and the engine takes of this kind."""
        return min(self._spec.max_rows, kind.max_rows)

    def _in_time(self, kind: Kind | None, rows: int, place: Place, now: float) -> Choice | None:
        """Return what can be done in time, at most `rows`; None when some had to be dropped."""
        waiting = self._kinds.by_kind[kind]
        there_are = min(rows, waiting.rows) or 1
        if self._is_in_time(waiting, there_are, place):
            is_choosy = self._has_target and there_are > 1
            return Choice(self._sizing.enough(there_are, place.together) if is_choosy else rows)
        if self._give_up(kind, place.begin, now):
            return None
        if kind is None:
            return Choice(rows)
        choice = self._sizing.choose(waiting, rows, place.begin, place.together)
        if choice.limit > -inf and self._spec.preserve_ordering:  # nobody is passed over
            if self._intake.give_up(kind, choice.limit, now):
                return None
            choice = Choice(choice.rows)
        return choice

    def _give_up(self, kind: Kind | None, start: float, now: float) -> bool:
        """Drop who is due before anything could be done; say whether there was anybody."""
        drops = self._intake.give_up(kind, start + self._capacity.least_s(1), now)
        self._doubt(drops, 1)
        return bool(drops)

    def _doubt(self, drops: Sequence[Drop], rows: int) -> None:
        """Where the device is idle and nobody is quick enough for it, trust what is known less.

        That is what batches of `rows` take: the size that the drops were reckoned with.
        """
        if any(drop.reason in FORECAST for drop in drops) and not self._num_busy():
            self._capacity.doubt(rows)
