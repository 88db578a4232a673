"""A model's queue by itself: requests without tensors, a batcher, and a clock in a test's hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from headrace.engines.base import Kind, Layout
from headrace.engines.batching_spec import BatchingSpec
from headrace.engines.layout import plan_layout
from headrace.scheduling.dynamic import DynamicBatcher
from headrace.scheduling.line import Line
from headrace.scheduling.request import Request
from headrace.slots.batch import Batch
from headrace.slots.capacity import Capacity


def new_kind() -> Kind:
    """Return a kind whose calls take 4 bytes a row and give as many."""
    kind = Kind(lambda rows: _layout(rows, kind))
    return kind


def _layout(rows: int, kind: Kind | None) -> Layout:
    planned = plan_layout([(rows, 4)], [4 * rows], [(rows, 4)], [4 * rows])
    fields = {name: getattr(planned, name) for name in Layout.__slots__}
    return Layout(**{**fields, "kind": kind})


ALONE = _layout(1, None)
KIND = new_kind()


def known(durations: Sequence[tuple[int, float]], times: int = 60) -> Capacity:
    """Return what is known after many steady runs: (rows, seconds) each."""
    capacity = Capacity()
    for _ in range(times):
        for rows, took_s in durations:
            capacity.learn(rows, took_s)
    return capacity


class Queue:
    """A batcher, what was put in, and what came out.

    Attributes:
        now: Clock seconds; the test moves them.
        start: When a batch enqueued now would begin, if that is later than now.
        num_busy: How many slots are at work.
        end: When the first of them will have ended.
    """

    def __init__(
        self,
        spec: BatchingSpec | None = None,
        capacity: Capacity | None = None,
        *,
        max_queue_size: int = 1000,
        starts_at: Callable[[float], float] | None = None,
    ) -> None:
        self.now = 0.0
        self.start = 0.0
        self.num_busy = 0
        self.end = 0.0
        self.capacity = capacity or Capacity()
        self.batcher = DynamicBatcher(
            spec or BatchingSpec(max_rows=8),
            self.capacity,
            starts_at or (lambda now: max(now, self.start)),
            max_queue_size,
            num_busy=lambda: self.num_busy,
            num_idle=lambda: int(self.start <= self.now),
            ends_at=lambda now: max(now, self.end),
        )
        self.asked: list[Request] = []
        self.ran: list[Request] = []
        self.lost: list[tuple[Request, str | None]] = []

    def request(
        self,
        *,
        rows: int = 1,
        kind: Kind | None = KIND,
        deadline_s: float | None = None,
        **fields: Any,
    ) -> Request:
        """Make a request that arrives now; its deadline is so many seconds away."""
        layout = ALONE if kind is None else kind.layout(rows)
        request = Request(
            cast("Line", None),
            layout,
            (),
            rows=rows,
            deadline=None if deadline_s is None else self.now + deadline_s,
            received_at=self.now,
            parsed_at=self.now,
            on_end=lambda *_: None,
            **fields,
        )
        request.staged_at = self.now
        return request

    def add(self, **fields: Any) -> Request:
        """Queue a new request."""
        request = self.request(**fields)
        self.asked.append(request)
        self.batcher.add(request, self.now)
        self._collect()
        return request

    def next(self) -> list[Request]:
        """Return who runs now; nobody when nothing should."""
        batch = self.next_batch()
        return [] if batch is None else list(batch.requests)

    def next_batch(self) -> Batch[Request] | None:
        """Return the batch that runs now."""
        batch = self.batcher.next_batch(self.now)
        self._collect()
        if batch is not None:
            self.ran.extend(batch.requests)
        return batch

    def drain(self) -> list[list[Request]]:
        """Return every batch that runs now, one after the other."""
        batches = []
        while batch := self.next():
            batches.append(batch)
        return batches

    def refuse(self, **fields: Any) -> str | None:
        """Return for what reason a newcomer would be refused; None when it would be let in."""
        drop = self.batcher.refuse(self.request(**fields), self.now)
        return None if drop is None else drop.reason

    def expire(self) -> None:
        """Let what is late end."""
        self.batcher.expire(self.now)
        self._collect()

    def _collect(self) -> None:
        self.lost.extend((drop.request, drop.reason) for drop in self.batcher.dropped)
        self.batcher.dropped.clear()
