"""A batcher that does whatever the protocol allows, by the dice: whoever drives it must bear it."""

from __future__ import annotations

import random

from headrace.errors import ExpiredError, OverloadedError, QueueTimeoutError, SupersededError
from headrace.scheduling.batcher import Drop, Helps, anyway
from headrace.scheduling.request import Request
from headrace.slots.batch import Batch

OFTEN, SELDOM = 0.3, 0.1


class WildBatcher:
    """A queue without any order."""

    def __init__(self, seed: float, max_rows: int) -> None:
        self.dropped: list[Drop] = []
        self._rng = random.Random(seed)
        self._max_rows = max_rows
        self._queue: list[Request] = []

    def __len__(self) -> int:
        return len(self._queue)

    def refuse(self, request: Request, now: float) -> Drop | None:
        """Refuse some, as hopeless or as too many."""
        if self._happens(SELDOM):
            return Drop(request, ExpiredError("no"), "hopeless")
        if self._happens(OFTEN):
            return Drop(request, OverloadedError("no"), "queue_full")
        return None

    def displace(self, request: Request, helps: Helps = anyway) -> Drop | None:
        """Let anybody give way who helps, or nobody."""
        if not self._queue or self._happens(0.5):
            return None
        victim = self._some()
        if helps(victim):
            return Drop(victim, OverloadedError("displaced"), "displaced")
        self._queue.append(victim)
        return None

    def add(self, request: Request, now: float) -> None:
        """Queue it in the place of others, or of nobody."""
        while self._queue and self._happens(OFTEN):
            self.dropped.append(Drop(self._some(), SupersededError("newer"), "superseded"))
        self._queue.append(request)

    def remove(self, request: Request) -> bool:
        """Take a request out again; False when it is not queued any more."""
        if request not in self._queue:
            return False
        self._queue.remove(request)
        return True

    def next_batch(self, now: float) -> Batch[Request] | None:
        """Drop some, and run some that can run together."""
        while self._queue and self._happens(SELDOM):
            self.dropped.append(Drop(self._some(), QueueTimeoutError("late"), "timeout"))
        if not self._queue or self._happens(OFTEN):
            return None
        members = [self._some()]
        kind = members[0].layout.kind
        rows = members[0].rows
        for request in list(self._queue):
            fits = rows + request.rows <= self._max_rows
            if kind is not None and request.layout.kind is kind and fits and self._happens(0.7):
                self._queue.remove(request)
                members.append(request)
                rows += request.rows
        return Batch(members, members[0].layout if kind is None else kind.layout(rows), rows)

    def next_look(self, now: float) -> float | None:
        """Ask to be looked at soon."""
        return now + self._rng.random() * 0.001

    def expire(self, now: float) -> None:
        """Drop some."""
        while self._queue and self._happens(SELDOM):
            self.dropped.append(Drop(self._some(), ExpiredError("late"), "expired"))

    def hurry(self) -> None:
        """Nothing more will come."""

    def clear(self) -> list[Request]:
        """Take every request out."""
        requests, self._queue = self._queue, []
        return requests

    def _happens(self, chance: float) -> bool:
        return self._rng.random() < chance

    def _some(self) -> Request:
        return self._queue.pop(self._rng.randrange(len(self._queue)))
