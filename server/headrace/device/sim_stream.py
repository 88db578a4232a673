"""A stream of the virtual device: a list of work that runs, item by item, when it is told to.

Rules
- An item starts when it was enqueued and the one before it has ended, whichever is later, and takes
  effect when it ends: a copy reads its source and writes its destination only then.
- What a launch raises is kept and given to the next event, as on the host device.
- What a launch itself puts on its stream takes effect at once: its turn has come.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from headrace.device.base import DevicePtr, Event, HostPtr, StreamHandle
from headrace.device.flag_event import FlagEvent
from headrace.device.ledger import STREAM_METHODS, Ledger, seal
from headrace.device.sim_memory import Place

if TYPE_CHECKING:
    from headrace.device.sim import SimDevice


class SimEvent(FlagEvent):
    """A flag event that also knows of a dead device."""

    def __init__(self, device: SimDevice, ledger: Ledger, *, is_timed: bool) -> None:
        super().__init__(ledger, is_timed=is_timed)
        self._device = device

    def is_done(self) -> bool:
        """Say whether the last recording is done; raise what failed before it."""
        self._device.check()
        return super().is_done()


@dataclass(frozen=True, slots=True)
class SimItem:
    """Something enqueued."""

    number: int  # in the order of enqueueing over all streams
    enqueued_s: float
    duration_s: float
    run: Callable[[], None]  # its effect, all of it at the end


class SimGraph:
    """Stands for a captured graph: launches the work anew, with whatever addresses it has kept."""

    def __init__(self, stream: SimStream, ledger: Ledger, work: Callable[[], None]) -> None:
        self.name = ledger.enter("graph")
        self._stream = stream
        self._ledger = ledger
        self._work = work

    def launch(self) -> None:
        """Enqueue it behind what is on the stream."""
        self._stream.launch(self._work)

    def close(self) -> None:
        """Close the graph; a second call does nothing."""
        self._ledger.strike(self.name)
        seal(self, self.name, ["launch"])


class SimStream:
    """An in-order list of items; `SimDevice` decides when the next one ends."""

    def __init__(self, device: SimDevice, ledger: Ledger, priority: int) -> None:
        self.name = ledger.enter("stream")
        self.handle = StreamHandle(id(self))
        self.priority = priority  # carried, and means nothing
        self.items: deque[SimItem] = deque()
        self._device = device
        self._ledger = ledger
        self._last_end_s = 0.0
        self._is_running = False  # a launch, at this moment
        self._error: BaseException | None = None
        self._is_closed = False

    @property
    def due(self) -> tuple[float, int]:
        """When the next item ends, and its number; infinity when there is none."""
        if not self.items:
            return math.inf, 0
        item = self.items[0]
        return max(item.enqueued_s, self._last_end_s) + item.duration_s, item.number

    def run_next(self) -> None:
        """End the next item."""
        self._last_end_s = self.due[0]
        self.items.popleft().run()

    def copy_h2d(self, dst: DevicePtr, src: HostPtr, size_bytes: int) -> None:
        """Enqueue a copy from host to device memory."""
        self._copy((dst, "device"), (src, "host"), size_bytes)

    def copy_d2h(self, dst: HostPtr, src: DevicePtr, size_bytes: int) -> None:
        """Enqueue a copy from device to host memory."""
        self._copy((dst, "host"), (src, "device"), size_bytes)

    def copy_d2d(self, dst: DevicePtr, src: DevicePtr, size_bytes: int) -> None:
        """Enqueue a copy within device memory."""
        self._copy((dst, "device"), (src, "device"), size_bytes)

    def clear(self, dst: DevicePtr, size_bytes: int) -> None:
        """Enqueue zeros over device memory, as fast as a copy."""
        if size_bytes:
            memory = self._device.memory
            memory.bytes_at(dst, size_bytes, "device")
            duration_s = size_bytes / self._device.copy_bytes_per_s
            self._enqueue(duration_s, partial(memory.clear, dst, size_bytes))

    def launch(self, work: Callable[[], None]) -> None:
        """Enqueue work; it runs when it ends."""
        fault = self._device.launch_trap.passed()
        if fault is not None:
            error, is_refused = fault
            if is_refused:
                raise error
            work = partial(_fail, error)
        self._enqueue(self._device.launch_s, partial(self._run_work, work))

    def capture(self, work: Callable[[], None]) -> SimGraph:
        """Return the work as a graph; it does not run now."""
        assert not self.items, f"{self.name} is captured while it is busy"
        error = self._device.capture_trap.passed()
        if error is not None:
            raise error
        return SimGraph(self, self._ledger, work)

    def record(self, event: Event) -> None:
        """Record the event behind all the work enqueued so far."""
        assert isinstance(event, SimEvent), "an event of another device"
        assert not event.is_closed, f"{event.name} is recorded after its close()"
        event.num_recorded += 1
        self._enqueue(0.0, partial(self._finish, event, event.num_recorded))

    def synchronize(self) -> None:
        """Let time pass, on all streams, until this one is empty."""
        while self.items:
            self._device.step()
        self._device.check()

    def close(self) -> None:
        """Let what is enqueued end, then close the stream; a second call does nothing."""
        if not self._is_closed:
            while self.items:
                self._device.step()
            self._is_closed = True
            self._device.forget(self)
            self._ledger.strike(self.name)
            seal(self, self.name, (*STREAM_METHODS, "capture"))

    def _copy(self, dst: tuple[int, Place], src: tuple[int, Place], size_bytes: int) -> None:
        if size_bytes:
            memory = self._device.memory
            memory.check(dst, src, size_bytes)
            duration_s = size_bytes / self._device.copy_bytes_per_s
            self._enqueue(duration_s, partial(memory.copy, dst, src, size_bytes))

    def _enqueue(self, duration_s: float, run: Callable[[], None]) -> None:
        self._device.check()
        if self._is_running:
            run()
            return
        number = self._device.next_number()
        self.items.append(SimItem(number, self._device.now, duration_s, run))

    def _run_work(self, work: Callable[[], None]) -> None:
        outer, self._is_running = self._is_running, True
        try:
            work()
        except AssertionError:
            raise  # a bug of ours ends the test, not the event
        except Exception as raised:  # noqa: BLE001 - the event carries it, of any kind
            self._error = self._error or raised
        finally:
            self._is_running = outer

    def _finish(self, event: SimEvent, ticket: int) -> None:
        error, self._error = self._error, None
        event.finish(ticket, error, self._device.now)
        self._device.tell()


def _fail(error: Exception) -> None:
    raise error
