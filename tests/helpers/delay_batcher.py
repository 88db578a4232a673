"""A batcher of a few lines: the oldest first, as many as fit, and a bounded wait for company.

What the real one is compared with where nothing but a delay is asked for. Everything in it is plain
enough to be right at a glance, and slow.
"""

from __future__ import annotations

from headrace.scheduling.batcher import EXPIRED, Drop, Helps, anyway
from headrace.scheduling.request import Request
from headrace.slots.batch import Batch


class DelayBatcher:
    """A queue in order of arrival."""

    def __init__(self, max_rows: int, max_delay_s: float = 0.0) -> None:
        self.max_rows = max_rows
        self.max_delay_s = max_delay_s
        self.dropped: list[Drop] = []
        self._queue: list[tuple[float, Request]] = []  # (when it came, what)

    def __len__(self) -> int:
        return len(self._queue)

    def refuse(self, request: Request, now: float) -> Drop | None:
        """Let every request in."""
        return None

    def displace(self, request: Request, helps: Helps = anyway) -> Drop | None:
        """Let nobody give way."""
        return None

    def add(self, request: Request, now: float) -> None:
        """Queue a request behind the others."""
        self._queue.append((now, request))

    def remove(self, request: Request) -> bool:
        """Take a request out again; False when it is not queued any more."""
        before = len(self._queue)
        self._queue = [entry for entry in self._queue if entry[1] is not request]
        return len(self._queue) < before

    def next_batch(self, now: float) -> Batch[Request] | None:
        """Return the oldest requests of the oldest one's kind, if they are many or one is old."""
        self.expire(now)
        if not self._queue:
            return None
        oldest_at, oldest = self._queue[0]
        kind = oldest.layout.kind
        members = [oldest]
        rows = oldest.rows
        for _, request in self._queue[1:]:
            if kind is None or request.layout.kind is not kind:
                continue
            if rows + request.rows > self.max_rows:
                break
            members.append(request)
            rows += request.rows
        is_full = kind is None or rows >= self.max_rows or len(members) < len(self._queue)
        if not is_full and now < oldest_at + self.max_delay_s:
            return None
        self._queue = [entry for entry in self._queue if entry[1] not in members]
        return Batch(members, oldest.layout if kind is None else kind.layout(rows), rows)

    def next_look(self, now: float) -> float | None:
        """Return when the oldest one will have waited long enough."""
        look = self._queue[0][0] + self.max_delay_s if self._queue else now
        return look if look > now else None  # after that only a free lane is missing

    def expire(self, now: float) -> None:
        """Drop what is too late."""
        for _, request in list(self._queue):
            if request.deadline is not None and request.deadline <= now:
                self.remove(request)
                self.dropped.append(Drop(request, EXPIRED, "expired"))

    def hurry(self) -> None:
        """Nothing more will come."""
        self.max_delay_s = 0.0

    def clear(self) -> list[Request]:
        """Take every request out."""
        requests = [request for _, request in self._queue]
        self._queue.clear()
        return requests
