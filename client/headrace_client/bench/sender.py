"""Sends requests over several connections, and writes down how each ended."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence

import grpc
import grpc.aio

from headrace_client.bench.level import Messages
from headrace_client.bench.record import DROPPED, OK, UNFINISHED, Record

Call = Callable[[bytes], Awaitable[bytes]]

MAX_PREPARED_BYTES = 64 << 20


class Sender:
    """Sends in turn over its connections.

    Args:
        calls: One for each connection: takes a serialized request, returns the reply, and raises
            `grpc.aio.AioRpcError` or `asyncio.CancelledError`.
        messages: What is sent for each source.
        record: Takes the results.
        clock: Seconds, on the clock of the schedule.
        counts_from_s: When the warm-up is over: texts of errors are taken from then on.
    """

    def __init__(
        self,
        calls: Sequence[Call],
        messages: Messages,
        record: Record,
        clock: Callable[[], float],
        counts_from_s: float = 0.0,
    ) -> None:
        self._calls = itertools.cycle(calls)
        self._record = record
        self._clock = clock
        self._counts_from_s = counts_from_s
        base, tails = messages.base, messages.tails
        self._base, self._tails = base, tails
        self._prepared: list[bytes] | None = None
        if (len(base) + len(tails[-1])) * len(tails) <= MAX_PREPARED_BYTES or len(tails) == 1:
            self._prepared = [base + tail for tail in tails]
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def num_in_flight(self) -> int:
        """How many were started and have not ended."""
        return len(self._tasks)

    async def send(self, due_s: float, source: int) -> None:
        """Send a request, and return when it has ended, however it did."""
        message = self._prepared[source] if self._prepared else self._base + self._tails[source]
        code = UNFINISHED
        sent_s = self._clock()
        try:
            reply = await next(self._calls)(message)
            code = OK
            self._record.replied(len(reply))
        except grpc.aio.AioRpcError as error:
            code = error.code().value[0]
            if due_s >= self._counts_from_s:
                self._record.said(code, error.details() or "")
        finally:
            self._record.ended(due_s, sent_s, self._clock(), code, source)

    def start(self, due_s: float, source: int) -> None:
        """Send a request, and do not wait for its end."""
        task = asyncio.get_running_loop().create_task(self.send(due_s, source))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def drop(self, due_s: float, source: int) -> None:
        """Write down that a request was due and is not sent."""
        now_s = self._clock()
        self._record.ended(due_s, now_s, now_s, DROPPED, source)

    async def finish(self, grace_s: float | None) -> None:
        """Wait until nothing is in flight, at most this long; what is left is cancelled.

        Args:
            grace_s: None waits for all, which their deadlines bound.
        """
        tasks = list(self._tasks)
        if tasks:
            _, left = await asyncio.wait(tasks, timeout=grace_s)
            for task in left:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
