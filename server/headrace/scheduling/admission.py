"""Admission: refuse what cannot be served in time, lease a block, make the one host copy.

Rules
- A request is admitted into a block at once, or waits for a block within the same queue bound, or
  is refused with an error that says why. Nothing is kept of a refused request.
- Where the queue or the blocks are full, a source that has more than its share gives one up for
  another's request, if that can be served then; what had to go is in `dropped`.
- Requests that wait for a block are served in order of arrival, whatever their model: a large one
  is not starved by small ones.
- The caller drains `dropped` after every call.
- Called from the thread that steps the core.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial

from headrace.errors import (
    DeviceError,
    ExpiredError,
    OverloadedError,
    RequestError,
    TooLargeError,
    UnavailableError,
)
from headrace.scheduling.batcher import EXPIRED, Drop
from headrace.scheduling.line import Line
from headrace.scheduling.request import Request, RequestState
from headrace.slots.blocks import Block, BlockPool

SHUTTING_DOWN = "GRPC server is shutting down and has stopped accepting new requests."


class Admission:
    """The gate between the front door and the queues."""

    def __init__(self, blocks: BlockPool, *, max_waiting_bytes: int) -> None:
        self._blocks = blocks
        self.max_waiting_bytes = max_waiting_bytes
        self._waiting: deque[Request] = deque()
        self._waiting_bytes = 0
        self.is_open = True
        # What waited in vain; the caller ends it.
        self.dropped: list[Drop] = []

    def __len__(self) -> int:
        """How many requests wait for a block, or to be told that they waited too long."""
        return len(self._waiting) + len(self.dropped)

    def admit(self, request: Request, now: float) -> bool:
        """Stage the request into a block; False when it has to wait for one.

        Raises:
            UnavailableError: The server is shutting down, or no slot of the model works.
            RetiredError: The line takes nothing more.
            ExpiredError: Its deadline has passed.
            OverloadedError: The queue, or what may wait for a block, is full.
            TooLargeError: It can never fit into the staging memory.
            RequestError: Its tensors cannot be read.
            HeadraceError: The model's policy does not let it wait.
        """
        line = request.line
        self.check_arrival(request, now)
        has_displaced = False
        if line.has_policy:
            has_displaced = self._ask_policy(request, now)
        elif len(line.batcher) + line.num_waiting >= line.max_queue_size:
            self._refuse_or_displace(_queue_full(request))
        if (has_displaced or not self._waiting) and self._stage(request):
            return True
        check_ready(line)  # its blocks do not come back
        if not self._blocks.fits(request.layout.size_bytes):
            raise _too_large(request.layout.size_bytes)
        may_displace = not has_displaced and self._displace(request, self._has_block_for)
        if may_displace and self._stage(request):
            return True
        self._wait(request)
        return False

    def check_arrival(self, request: Request, now: float) -> None:
        """Refuse what has come too late, whatever room there is; a step of an ensemble is in.

        Raises:
            UnavailableError: The server is shutting down.
            ExpiredError: Its deadline has passed.
        """
        if not self.is_open and not request.is_step:
            raise self._closed(request)
        if request.deadline is not None and request.deadline <= now:
            request.line.metrics.dropped("expired")
            raise ExpiredError("the deadline had passed when the request arrived")

    def check_known(self, request: Request) -> None:
        """Refuse a request whose reply is known, as if it had to be served.

        Raises:
            UnavailableError: The server is shutting down, or no slot of the model works.
            RetiredError: The line takes nothing more.
            OverloadedError: Replies are held back, and the queue is full with them.
        """
        line = request.line
        if not self.is_open:
            raise self._closed(request)
        check_ready(line)
        if line.ordering is not None and line.length + _num_held(line) >= line.max_queue_size:
            line.metrics.dropped("queue_full")
            raise _queue_full(request).error

    def retry(self, now: float) -> list[Request]:
        """Stage the requests that waited, as far as there are blocks now, and return them."""
        staged: list[Request] = []
        while self._waiting:
            request = self._waiting[0]
            if request.deadline is not None and request.deadline <= now:
                self.dropped.append(Drop(self._pop(), EXPIRED, "expired"))
                continue
            size_bytes = request.layout.size_bytes
            try:
                block = self._blocks.lease(size_bytes)
            except DeviceError as error:  # as in `admit`: this request's misfortune alone
                self.dropped.append(Drop(self._pop(), error, None))
                continue
            if block is not None:
                self._stage_later(self._pop(), block, staged)
            elif self._blocks.fits(size_bytes):
                break
            else:  # since it began to wait, a slot has failed and kept its blocks
                self.dropped.append(Drop(self._pop(), _too_large(size_bytes), "no_block"))
        return staged

    def remove(self, request: Request) -> None:
        """Take a request out again that waits for a block."""
        for entry in self.dropped:
            if entry.request is request:
                self.dropped.remove(entry)
                return
        self._waiting.remove(request)
        self._forget(request)

    def has_dropped(self, line: Line) -> bool:
        """Whether a request of a line has still to be told that it waited in vain."""
        return any(entry.request.line is line for entry in self.dropped)

    def take(self, line: Line) -> list[Request]:
        """Take out every request of a line that waits for a block."""
        taken = [request for request in self._waiting if request.line is line]
        for request in taken:
            self.remove(request)
        return taken

    def clear(self) -> list[Request]:
        """Take out every request that waits for a block."""
        waiting = [entry.request for entry in self.dropped]
        self.dropped.clear()
        while self._waiting:
            waiting.append(self._pop())
        return waiting

    def expire(self, now: float) -> None:
        """Move every waiting request whose deadline has passed to `dropped`."""
        for request in [r for r in self._waiting if r.deadline is not None and r.deadline <= now]:
            self.remove(request)
            self.dropped.append(Drop(request, EXPIRED, "expired"))

    def _stage(self, request: Request) -> bool:
        """Stage a request that has just come; False when there is no block."""
        block = self._blocks.lease(request.layout.size_bytes)
        if block is None:
            return False
        try:
            request.stage(block)
        except RequestError:
            self._blocks.release(block)
            raise
        return True

    def _stage_later(self, request: Request, block: Block, staged: list[Request]) -> None:
        """Stage a request that waited; one whose tensors cannot be read any more is dropped."""
        try:
            request.stage(block)
        except RequestError as error:
            self._blocks.release(block)
            self.dropped.append(Drop(request, error, None))
        else:
            staged.append(request)

    def _ask_policy(self, request: Request, now: float) -> bool:
        """Raise why a request cannot be queued; True when another gives way to it."""
        line = request.line
        drop = line.batcher.refuse(request, now)
        is_full = line.length + _num_held(line) >= line.max_queue_size
        if is_full and (drop is None or drop.reason == "queue_full"):
            drop = _queue_full(request)
        if drop is None:
            return False
        self._refuse_or_displace(drop)
        return True

    def _refuse_or_displace(self, drop: Drop) -> None:
        """Raise why a request cannot be queued, unless the queue is full and another gives way."""
        request = drop.request
        check_ready(request.line)
        if drop.reason == "queue_full" and self._displace(request, self._has_place_for):
            return
        if drop.reason is not None:
            request.line.metrics.dropped(drop.reason)
        raise drop.error.with_traceback(None)  # it may be one for all, and would collect them

    def _displace(self, request: Request, helps: Callable[[Request, Request], bool]) -> bool:
        """Take a queued request out for this one, if that helps; its block is free at once."""
        drop = request.line.batcher.displace(request, partial(helps, request))
        if drop is None:
            return False
        victim = drop.request
        if victim.block is not None:
            self._blocks.release(victim.block)
            victim.block = None
        self.dropped.append(drop)
        return True

    def _has_block_for(self, request: Request, victim: Request) -> bool:
        """Whether there would be a block for a request, if another gave its own up."""
        given_bytes = 0 if victim.block is None else victim.block.size_bytes
        return self._blocks.could_lease(request.layout.size_bytes, given_bytes)

    def _has_place_for(self, request: Request, victim: Request) -> bool:
        """Whether a request could be queued in another's place, with a block or waiting for one."""
        size_bytes = request.layout.size_bytes
        may_wait = self._waiting_bytes + size_bytes <= self.max_waiting_bytes
        return self._has_block_for(request, victim) or (may_wait and self._blocks.fits(size_bytes))

    def _closed(self, request: Request) -> UnavailableError:
        request.line.metrics.dropped("shutdown")
        return UnavailableError(SHUTTING_DOWN)

    def _wait(self, request: Request) -> None:
        size_bytes = request.layout.size_bytes
        line = request.line
        if self._waiting_bytes + size_bytes > self.max_waiting_bytes:
            line.metrics.dropped("no_block")
            raise OverloadedError(
                "Exceeds maximum queue size: the staging memory is in use and as much again waits"
            )
        request.state = RequestState.WAITING
        self._waiting.append(request)
        self._waiting_bytes += size_bytes
        line.num_waiting += 1

    def _pop(self) -> Request:
        request = self._waiting.popleft()
        self._forget(request)
        return request

    def _forget(self, request: Request) -> None:
        self._waiting_bytes -= request.layout.size_bytes
        request.line.num_waiting -= 1


def _num_held(line: Line) -> int:
    return 0 if line.ordering is None else line.ordering.num_held


def _queue_full(request: Request) -> Drop:
    line = request.line
    error = f"Exceeds maximum queue size: {line.max_queue_size} requests wait for {line.model}"
    return Drop(request, OverloadedError(error), "queue_full")


def _too_large(size_bytes: int) -> TooLargeError:
    return TooLargeError(
        f"the request and its reply need {size_bytes} bytes of staging memory, more than there is "
        "in all; the operator can raise --pinned-memory-pool-byte-size"
    )


def check_ready(line: Line) -> None:
    """Raise why a line serves no request: it was unloaded, or none of its slots works."""
    line.check_current()
    if not line.pool.is_ready:
        raise UnavailableError(f"{line.model} is not at ready state: its slots have failed")
