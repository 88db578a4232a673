"""The batcher: which queued requests run together, or when to look again.

Rules
- Pure: it is given `now` (clock seconds) and reads no clock; it owns the queue and nothing else.
- A request is in `next_batch`'s answer, in `dropped`, or returned by `remove`; never in two.
- A request whose deadline has passed, or would pass before even a quick run is done, is dropped
  before it costs any work of the device.
- The caller drains `dropped` after every call that takes `now`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

from headrace.engines.base import Layout
from headrace.errors import ExpiredError, HeadraceError
from headrace.metrics.statistics import DropReason
from headrace.scheduling.request import Request
from headrace.slots.batch import Batch

EXPIRED = ExpiredError("its deadline passed, or can no longer be met")


Helps = Callable[[Request], bool]


def anyway(_: Request) -> bool:
    """Say yes of everybody."""
    return True


class Drop(NamedTuple):
    """A request that will not run: how it ends, and as what it is counted.

    `reason` is None where the error itself is counted by who tells the caller.
    """

    request: Request
    error: HeadraceError
    reason: DropReason | None


class Batcher(Protocol):
    """The policy of one model's queue."""

    dropped: list[Drop]  # the caller ends them and clears the list

    def __len__(self) -> int:
        """How many requests are queued."""

    def refuse(self, request: Request, now: float) -> Drop | None:
        """Say why a request that has just come shall not be queued; None when it may be."""

    def displace(self, request: Request, helps: Helps = anyway) -> Drop | None:
        """Take out what must make room for a request of another source; None when nothing must.

        Called when the queue or the staging memory is full: a source that takes more than its share
        gives way. `helps` says of who would have to go whether that helps; else nobody goes.
        """

    def add(self, request: Request, now: float) -> None:
        """Queue a request whose inputs lie in its block; what it supersedes is dropped."""

    def remove(self, request: Request) -> bool:
        """Take a request out again (its caller left); False when it is not queued any more."""

    def next_batch(self, now: float) -> Batch[Request] | None:
        """Return what should run now, None when nothing should."""

    def next_look(self, now: float) -> float | None:
        """Return when `next_batch` may answer anew though nothing arrives; None for never."""

    def expire(self, now: float) -> None:
        """Move every queued request whose deadline has passed to `dropped`."""

    def hurry(self) -> None:
        """Wait for no company from now on: nothing more will come."""

    def clear(self) -> list[Request]:
        """Take every queued request out."""


class SingleBatcher:
    """Every request is a batch of its own, in order of arrival."""

    def __init__(self, least_s: Callable[[Layout], float] = lambda _: 0.0) -> None:
        """Start empty; `least_s` says what a run of a layout will hardly fall below, in seconds."""
        self._least_s = least_s
        self.dropped: list[Drop] = []
        self._queue: deque[Request] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    def refuse(self, request: Request, now: float) -> Drop | None:  # noqa: ARG002 -- others do
        """Return None: any request may be queued."""
        return None

    def displace(
        self,
        request: Request,  # noqa: ARG002 -- others tell sources apart
        helps: Helps = anyway,  # noqa: ARG002
    ) -> Drop | None:
        """Return None: first come, first served."""
        return None

    def add(self, request: Request, now: float) -> None:  # noqa: ARG002 -- others wait
        """Queue a request whose inputs lie in its block."""
        self._queue.append(request)

    def remove(self, request: Request) -> bool:
        """Take a request out again; False when it is not queued any more."""
        try:
            self._queue.remove(request)
        except ValueError:
            return False
        return True

    def next_batch(self, now: float) -> Batch[Request] | None:
        """Return the oldest request that can still meet its deadline."""
        queue = self._queue
        while queue:
            request = queue.popleft()
            if self._is_hopeless(request, now):
                self.dropped.append(Drop(request, EXPIRED, "expired"))
                continue
            return Batch((request,), request.layout, request.rows)
        return None

    def next_look(self, now: float) -> float | None:  # noqa: ARG002 -- it never waits for company
        """Return None: a batch of one has nothing to wait for."""
        return None

    def expire(self, now: float) -> None:
        """Move every queued request whose deadline has passed to `dropped`."""
        expired = [request for request in self._queue if self._is_hopeless(request, now)]
        if expired:
            gone = set(expired)
            self._queue = deque(r for r in self._queue if r not in gone)
            self.dropped.extend(Drop(request, EXPIRED, "expired") for request in expired)

    def hurry(self) -> None:
        """Do nothing: nobody waits for company."""

    def clear(self) -> list[Request]:
        """Take every queued request out."""
        requests = list(self._queue)
        self._queue.clear()
        return requests

    def _is_hopeless(self, request: Request, now: float) -> bool:
        deadline = request.deadline
        return deadline is not None and deadline <= now + self._least_s(request.layout)
