"""The two ways to feed slots: one request after the other, and a window kept in flight.

The window goes through the real scheduler: admission, blocks, lanes and poller are what the server
runs, so a rung costs the host what it will cost there; only the front door is missing. One request
after the other needs none of that: it is what a plain program would do with one stream.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from headrace.device.base import Device
from headrace.ladder.rungs import Rung
from headrace.ladder.subject import Payload, TimedSlot
from headrace.metrics import Metrics
from headrace.scheduling.admission import Admission
from headrace.scheduling.batcher import SingleBatcher
from headrace.scheduling.line import Line
from headrace.scheduling.request import Request
from headrace.scheduling.scheduler import Scheduler
from headrace.slots.batch import Batch, Output, Placed, Timing
from headrace.slots.blocks import BlockPool
from headrace.slots.lane import Lane
from headrace.slots.poller import Poller
from headrace.slots.pool import SlotPool

WAKE_S = 1.0  # the longest wait for a device that notifies
Clock = Callable[[], float]


class Work(NamedTuple):
    """What the device did for one request: seconds; NaN where there are no copies."""

    slot: int
    begun_at: float  # clock seconds
    h2d_s: float
    execute_s: float
    d2h_s: float


@dataclass(slots=True)
class Samples:
    """What was counted between `since` and `until`, in clock seconds."""

    since: float = 0.0
    until: float = 0.0
    latencies_s: list[float] = field(default_factory=list)
    work: list[Work] = field(default_factory=list)
    host_s: float = 0.0  # in which the host was at work

    def count(self, latency_s: float, timing: Timing | None) -> None:
        """Count a request that ended."""
        self.latencies_s.append(latency_s)
        if isinstance(timing, Placed):
            slot = timing.lane.slot.index
            work = Work(slot, timing.begun_at, timing.h2d_s, timing.execute_s, timing.d2h_s)
            self.work.append(work)


class Loop(Protocol):
    """Feeds slots."""

    def run(self, seconds_s: float) -> Samples:
        """Feed them for so long, then let everything end.

        Raises:
            HeadraceError: A request failed.
        """


class OneByOne:
    """Copies, enqueues, copies and waits, with nothing else in flight."""

    def __init__(
        self, slots: Sequence[TimedSlot], payload: Payload, blocks: BlockPool, clock: Clock
    ) -> None:
        self._slots = slots
        self.payload = payload
        self._blocks = blocks
        self._clock = clock
        pool = SlotPool(slots)
        self._line = Line("ladder", SingleBatcher(), pool, Metrics().model("ladder", "1"), 1)

    def run(self, seconds_s: float) -> Samples:
        """Feed the first slot's first lane."""
        slot, now = self._slots[0], self._clock()
        samples = Samples(now, now + seconds_s)
        while now < samples.until:
            before, now = now, self.once(slot, slot.lanes[0], samples)
            samples.latencies_s.append(now - before)
        samples.until = now
        return samples

    def once(self, slot: TimedSlot, lane: Lane, samples: Samples) -> float:
        """Run one request on a lane and return when it was done, in clock seconds."""
        clock, payload = self._clock, self.payload
        began_at = clock()
        request = _request(self._line, payload, began_at, _never)
        block = self._blocks.lease(payload.layout.size_bytes)
        assert block is not None, "there is a block for every request of the window"
        request.stage(block)
        slot.enqueue(lane, Batch((request,), payload.layout, payload.rows))
        enqueued_at = clock()
        slot.synchronize()
        woken_at = clock()
        try:
            slot.in_flight.popleft()
            if lane.error is not None:
                raise lane.error
            lane.event.is_done()
            slot.outputs(lane, 0)
            timing = lane.timing(woken_at)
        finally:
            lane.free()
            self._blocks.release(block)
        ended_at = clock()
        samples.host_s += enqueued_at - began_at + ended_at - woken_at
        if slot.is_inline:
            samples.host_s -= timing.execute_s
        if isinstance(timing, Placed):
            samples.work.append(Work(slot.index, timing.begun_at, *timing[1:4]))
        return ended_at


class Window:
    """Keeps a number of requests in the scheduler; a new one comes for each that ends."""

    def __init__(
        self,
        slots: Sequence[TimedSlot],
        payload: Payload,
        blocks: BlockPool,
        clock: Clock,
        *,
        rung: Rung,
        device: Device,
    ) -> None:
        self._payload = payload
        self._size = rung.window
        self._clock = clock
        metrics = Metrics().model("ladder", "1")
        self._line = Line("ladder", SingleBatcher(), SlotPool(slots), metrics, self._size)
        admission = Admission(blocks, max_waiting_bytes=0)
        self._scheduler = Scheduler(blocks, Poller(), admission, clock=clock)
        self._scheduler.add_line(self._line)
        self._progress = threading.Event() if device.is_unified else None
        self._device = device
        self._num_in = 0
        self._num_ended = 0
        self._error: Exception | None = None
        self._samples = Samples()

    def run(self, seconds_s: float) -> Samples:
        """Feed the scheduler; what ends after the time is not counted."""
        if self._progress is not None:
            self._device.on_progress = self._progress.set
        now = self._clock()
        self._samples = samples = Samples(now, now + seconds_s)
        try:
            while now < samples.until and self._error is None:
                now = self._turn(now, self._size)
            while not self._scheduler.is_idle:
                now = self._turn(now, 0)
        finally:
            self._device.on_progress = None
        if self._error is not None:
            raise self._error
        return samples

    def _turn(self, now: float, size: int) -> float:
        """Submit up to the window, step once, wait where the device notifies; return the time."""
        num_before = self._num_in, self._num_ended
        while self._num_in < size:
            self._num_in += 1
            self._scheduler.submit(_request(self._line, self._payload, now, self._on_end), now)
        has_more = self._scheduler.step(now)
        after = self._clock()
        if (self._num_in, self._num_ended) != num_before and after < self._samples.until:
            self._samples.host_s += after - now
        if self._progress is not None and not has_more and self._num_in >= size:
            if not self._scheduler.is_idle:
                self._progress.wait(WAKE_S)
            self._progress.clear()
            after = self._clock()
        return after

    def _on_end(
        self, request: Request, outputs: Sequence[Output] | None, error: Exception | None
    ) -> None:
        del outputs
        self._num_in -= 1
        self._num_ended += 1
        now = self._clock()
        if error is not None:
            self._error = self._error or error
        elif now < self._samples.until:
            self._samples.count(now - request.received_at, request.timing)


def _request(line: Line, payload: Payload, now: float, on_end: Callable[..., None]) -> Request:
    return Request(
        line,
        payload.layout,
        payload.tensors,
        rows=payload.rows,
        deadline=None,
        received_at=now,
        parsed_at=now,
        on_end=on_end,
    )


def _never(*_: object) -> None:
    raise AssertionError("no scheduler knows of this request")
