"""Dynamic batching: requests of one kind run together, when they are enough or have waited enough.

Rules
- A batch is bound to a lane late: while every slot is busy, one that is not full stays open until
  shortly before the first of them comes free. A full one goes at once: the next lane is its place.
- A slot that is idle waits for company only as long as `max_delay_s` lets it.
- Requests that cannot share a batch (no kind) run alone, in their turn.
- What the device could not do in time any more, by what it was seen to take, is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf

from headrace.engines.base import Kind
from headrace.engines.batching_spec import BatchingSpec
from headrace.scheduling.batcher import EXPIRED, Drop
from headrace.scheduling.fair import FairClock
from headrace.scheduling.request import Request
from headrace.scheduling.waiting import Waiting
from headrace.slots.batch import Batch
from headrace.slots.capacity import Capacity

LEAD_S = (
    0.5e-3  # a batch is bound so long before its slot is free: copying it over takes about that
)
PATIENCE_S = 10.0  # a request without a deadline counts as due so long after it came
MAX_SPARE = 4
MAX_KINDS = 32  # kinds that are looked at for a batch; of more, those served longest ago


class DynamicBatcher:
    """The policy of one model's queue."""

    def __init__(
        self,
        spec: BatchingSpec,
        capacity: Capacity,
        starts_at: Callable[[float], float],
        default_max_queue_size: int,
    ) -> None:
        """Start empty.

        Args:
            spec: What the model's configuration says.
            capacity: What batches take, by their rows.
            starts_at: Says when a batch that is enqueued now would begin to run, in clock seconds.
            default_max_queue_size: Requests of a priority that may wait, where `spec` does not say.
        """
        self.dropped: list[Drop] = []
        self._spec = spec
        self._capacity = capacity
        self._starts_at = starts_at
        self._default_max_queue_size = default_max_queue_size
        self._kinds: dict[Kind | None, Waiting] = {}
        self._spare: list[Waiting] = []  # that ran empty: the next kind takes one of them
        self._clocks: dict[float, FairClock] = {}
        self._is_shared = False  # a source with a name has been seen
        self._num_queued = 0
        self._num_due = 0  # how many of them have a time at which they are due
        self._number = 0
        self._look_at: float | None = None

    def __len__(self) -> int:
        return self._num_queued

    def refuse(self, request: Request, now: float) -> Drop | None:  # noqa: ARG002 -- to come
        """Say why a request that has just come shall not be queued; None when it may be."""
        return None

    def displace(self, request: Request) -> Drop | None:  # noqa: ARG002 -- to come
        """Take out what must make room for a request of another source; None when nothing must."""
        return None

    def add(self, request: Request, now: float) -> None:
        """Queue a request whose inputs lie in its block."""
        if request.source is not None and not self._is_shared:
            self._share()
        kind = request.layout.kind
        waiting = self._kinds.get(kind)
        if waiting is None:
            waiting = self._kinds[kind] = self._open()
        self._number += 1
        due = inf if request.deadline is None else request.deadline
        key = min(due, request.received_at + PATIENCE_S)
        waiting.add((key, self._number, request, now, due), self._rank(request))
        self._num_queued += 1
        self._num_due += due < inf

    def remove(self, request: Request) -> bool:
        """Take a request out again; False when it is not queued any more."""
        kind = request.layout.kind
        waiting = self._kinds.get(kind)
        if waiting is None or not waiting.remove(request):
            return False
        self._left(kind, waiting, (request,))
        return True

    def next_batch(self, now: float) -> Batch[Request] | None:
        """Return what should run now, None when nothing should."""
        self._look_at = None
        while self._num_queued:
            start = self._starts_at(now)
            ready = self._ready(start, now)
            if not ready:
                return None
            kind = ready[0] if len(ready) == 1 else self._first(ready)
            batch = self._form(kind, max(start, now), now)
            if batch is not None:
                return batch
        return None

    def next_look(self, now: float) -> float | None:  # noqa: ARG002 -- the last answer holds
        """Return when `next_batch` may answer anew though nothing arrives; None for never."""
        return self._look_at

    def expire(self, now: float) -> None:
        """Move every queued request that cannot be answered in time any more to `dropped`."""
        if self._num_due:
            soonest = max(self._starts_at(now), now) + self._capacity.least_s(1)
            for kind in list(self._kinds):
                self._give_up(kind, soonest)

    def clear(self) -> list[Request]:
        """Take every queued request out."""
        requests = [each for waiting in self._kinds.values() for each in waiting.requests()]
        for request in requests:
            self.remove(request)
        return requests

    # --- when -------------------------------------------------------------------------------------

    def _ready(self, start: float, now: float) -> list[Kind | None]:
        """Return the kinds that should run now; if there are none, note when to look again."""
        ready: list[Kind | None] = []
        look_at = inf
        for kind, waiting in self._kinds.items():
            at = self._ready_at(kind, waiting, start, now)
            if at <= now:
                ready.append(kind)
            else:
                look_at = min(look_at, at)
            if len(ready) == MAX_KINDS:
                break
        if not ready and look_at < inf:
            self._look_at = look_at
        return ready

    def _ready_at(self, kind: Kind | None, waiting: Waiting, start: float, now: float) -> float:
        spec = self._spec
        if kind is None or waiting.rows >= self._most_rows(kind):
            return now
        at = now
        if spec.max_delay_s and not self._is_preferred(waiting.rows):
            at = waiting.since + spec.max_delay_s
        return max(at, start - LEAD_S) if start > now else at

    def _is_preferred(self, rows: int) -> bool:
        preferred = self._spec.preferred_rows
        return bool(preferred) and rows >= preferred[0]

    def _first(self, ready: list[Kind | None]) -> Kind | None:
        """Return the kind whose next request comes first in the order of all."""

        def standing(kind: Kind | None) -> tuple[float, float, float]:
            level = self._kinds[kind].top()
            assert level is not None
            head = level.head()
            assert head is not None
            return level.since + level.rank_s, head.tag, head.entry[0]

        return min(ready, key=standing)

    # --- what -------------------------------------------------------------------------------------

    def _form(self, kind: Kind | None, start: float, now: float) -> Batch[Request] | None:
        """Take the batch of a kind out; None when all of it had to be dropped."""
        waiting = self._kinds[kind]
        if self._num_due:
            self._give_up(kind, start + self._capacity.least_s(1))
            if not waiting.num_requests:
                return None
        requests = waiting.take(0 if kind is None else self._size(kind, waiting, now))
        self._left(kind, waiting, requests)
        if kind is None:
            return Batch(requests, requests[0].layout, requests[0].rows)
        rows = sum(request.rows for request in requests)
        return Batch(requests, kind.layout(rows), rows)  # one request may be padded, too

    def _size(self, kind: Kind, waiting: Waiting, now: float) -> int:
        """Return how many rows run: a preferred size while those that are left may wait."""
        spec = self._spec
        rows, most = waiting.rows, self._most_rows(kind)
        if rows >= most or now >= waiting.since + spec.max_delay_s:
            return most
        return max((size for size in spec.preferred_rows if size <= rows), default=most)

    def _most_rows(self, kind: Kind) -> int:
        """Return the most that the policy lets run together, and the engine takes of this kind."""
        return min(self._spec.max_rows, kind.max_rows)

    def _give_up(self, kind: Kind | None, soonest: float) -> None:
        """Drop who is due before anything could be done."""
        waiting = self._kinds[kind]
        gone = waiting.take_before(soonest)
        if gone:
            self.dropped.extend(Drop(request, EXPIRED, "expired") for request in gone)
            self._left(kind, waiting, gone)

    # --- books ------------------------------------------------------------------------------------

    def _left(self, kind: Kind | None, waiting: Waiting, requests: Sequence[Request]) -> None:
        """Note that requests are in no more."""
        self._num_queued -= len(requests)
        if self._num_due:
            self._num_due -= sum(request.deadline is not None for request in requests)
        if not waiting.num_requests:
            del self._kinds[kind]
            if len(self._spare) < MAX_SPARE:
                self._spare.append(waiting)
        elif len(self._kinds) > 1:
            self._kinds[kind] = self._kinds.pop(kind)  # behind the others

    def _open(self) -> Waiting:
        if self._spare:
            return self._spare.pop()
        return Waiting(self._clock, is_shared=self._is_shared)

    def _rank(self, request: Request) -> float:
        if self._spec.num_priorities == 1:
            return 0.0
        return (request.priority or self._spec.default_priority) - 1.0

    def _clock(self, rank: float) -> FairClock:
        clock = self._clocks.get(rank)
        if clock is None:
            clock = self._clocks[rank] = FairClock()
        return clock

    def _share(self) -> None:
        """From now on sources take turns."""
        self._is_shared = True
        for waiting in (*self._kinds.values(), *self._spare):
            waiting.share()
