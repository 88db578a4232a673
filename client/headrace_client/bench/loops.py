"""The two ways to put load on a server: callers in a closed loop, and a schedule in an open one."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Callable, Iterator, Sequence

from headrace_client.bench.alarm import Alarm
from headrace_client.bench.record import Record
from headrace_client.bench.schedule import Arrivals, Schedule
from headrace_client.bench.sender import Sender

MAX_LATE_S = 1.0  # what could not be sent for so long is dropped: a backlog would never end
_MAX_AT_ONCE = 16  # requests sent in one turn of the event loop, so that answers are read between
_PROBE_S = 0.01

Clock = Callable[[], float]
MakeAlarm = Callable[[Callable[[], None]], Alarm]


class Gate:
    """Says whether a request that is due may still be sent.

    Args:
        counts_from_s: The warm-up's end; requests from there on are counted.
        end_s: What is due then or later is not sent; None: no such time.
        num_requests: How many are sent after the warm-up; None: as many as there are.
    """

    def __init__(self, counts_from_s: float, end_s: float | None, num_requests: int | None) -> None:
        self._counts_from_s = counts_from_s
        self.end_s = math.inf if end_s is None else end_s
        self._left = math.inf if num_requests is None else num_requests

    def admits(self, due_s: float) -> bool:
        """Whether this one may be sent; it is counted if so."""
        if due_s >= self.end_s:
            return False
        if due_s >= self._counts_from_s:
            if self._left <= 0:
                return False
            self._left -= 1
        return True

    @property
    def is_spent(self) -> bool:
        """Whether the last of the requests that were asked for has been sent."""
        return self._left <= 0

    def close(self) -> None:
        """Admit nothing any more."""
        self.end_s = -math.inf


async def closed_loop(
    sender: Sender, gate: Gate, num_callers: int, turns: Sequence[int], clock: Clock
) -> None:
    """Let callers send one request after another until the gate is closed and all have ended."""
    sources = itertools.cycle(turns)

    async def caller() -> None:
        while gate.admits(now_s := clock()):
            await sender.send(now_s, next(sources))

    await asyncio.gather(*(caller() for _ in range(num_callers)))


def due_requests(
    schedule: Schedule, start_s: float, worker: int, num_workers: int
) -> Iterator[tuple[float, int]]:
    """Give this worker's share of a schedule: when each is due, on the clock, and its source."""
    for index in itertools.count():
        batch: Arrivals | None = schedule.batch(index)
        if batch is None:
            return
        times_s, sources = batch.share(worker, num_workers, index)
        yield from zip((times_s + start_s).tolist(), sources.tolist(), strict=True)


class OpenLoop:
    """Sends each request when it is due, whatever became of those before.

    Args:
        sender: Sends them.
        gate: Ends the load.
        requests: When each is due, rising, and its source.
        max_in_flight: More than so many are not sent but dropped.
        clock: Seconds, on the clock of `requests`.
        make_alarm: Makes the timer.
    """

    def __init__(
        self,
        sender: Sender,
        gate: Gate,
        requests: Iterator[tuple[float, int]],
        *,
        max_in_flight: int,
        clock: Clock,
        make_alarm: MakeAlarm,
    ) -> None:
        self._sender = sender
        self._gate = gate
        self._requests = requests
        self._max_in_flight = max_in_flight
        self._clock = clock
        self._alarm = make_alarm(self._send_due)
        self._next: tuple[float, int] | None = None
        self._is_over = asyncio.Event()

    async def run(self) -> None:
        """Return when the schedule or the gate ends it; requests may still be in flight."""
        self._next = next(self._requests, None)
        self._send_due()
        await self._is_over.wait()
        self._alarm.close()

    def stop(self) -> None:
        """End it now."""
        self._gate.close()
        self._is_over.set()

    def _send_due(self) -> None:
        for _ in range(_MAX_AT_ONCE):
            if self._next is None or self._next[0] >= self._gate.end_s or self._gate.is_spent:
                self._is_over.set()
                return
            due_s, source = self._next
            now_s = self._clock()
            if now_s < due_s:
                break
            self._gate.admits(due_s)
            if now_s - due_s > MAX_LATE_S or self._sender.num_in_flight >= self._max_in_flight:
                self._sender.drop(due_s, source)
            else:
                self._sender.start(due_s, source)
            self._next = next(self._requests, None)
        self._alarm.set(self._next[0] if self._next else 0.0)


class Probe:
    """Measures how late the event loop is, every 10 ms: what it adds to latencies.

    Args:
        record: Takes the results.
        from_s: Measured from then on.
        clock: Seconds.
        make_alarm: Makes the timer.
    """

    def __init__(self, record: Record, from_s: float, clock: Clock, make_alarm: MakeAlarm) -> None:
        self._record = record
        self._clock = clock
        self._alarm = make_alarm(self._ring)
        self._due_s = max(from_s, clock()) + _PROBE_S
        self._alarm.set(self._due_s)

    def close(self) -> None:
        """Measure no more."""
        self._alarm.close()

    def _ring(self) -> None:
        now_s = self._clock()
        self._record.lagged(now_s - self._due_s)
        self._due_s = now_s + _PROBE_S
        self._alarm.set(self._due_s)
