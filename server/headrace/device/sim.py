"""A virtual device for tests: nothing happens on it until it is told to, and then always the same.

It passes the contract of the real ones, and is harsher: copies take effect at the last moment that
the contract allows, fresh and freed memory hold wrong bytes, and misuse raises AssertionError.
One thread uses it; time is the number `now`, which only the calls under "time" move.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from headrace.device import flag_event
from headrace.device.base import Event
from headrace.device.ledger import Ledger
from headrace.device.sim_memory import SimDeviceBuffer, SimHostBuffer, SimMemory, SimPinnedRange
from headrace.device.sim_shared import SimForeign, SimProcesses, SimShared
from headrace.device.sim_stream import SimEvent, SimStream
from headrace.device.sim_trap import Trap
from headrace.errors import DeviceError

_GIB = 1024**3


class SimDevice:
    """A device in a test's hand.

    Args:
        index: Carried, and means nothing.
        is_unified: As the host device: engines use the staging blocks as they are.
        copy_bytes_per_s: How fast each copy is; may be set anew before any copy is enqueued.
        launch_s: How long each launch takes; may be set anew before any launch.
        total_bytes: Device memory there is.
        total_host_bytes: Host memory there is for `alloc_host`.
    """

    kind = "sim"

    def __init__(
        self,
        index: int = 0,
        *,
        is_unified: bool = False,
        copy_bytes_per_s: float = math.inf,
        launch_s: float = 0.0,
        total_bytes: int = _GIB,
        total_host_bytes: int = _GIB,
    ) -> None:
        self.index = index
        self.name = "virtual device"
        self.is_unified = is_unified
        self.opens_shared = not is_unified
        self.on_progress: Callable[[], None] | None = None
        self.copy_bytes_per_s = copy_bytes_per_s
        self.launch_s = launch_s
        self.now = 0.0  # seconds
        self.launch_trap: Trap[tuple[Exception, bool]] = Trap()
        self.capture_trap: Trap[Exception] = Trap()
        self._ledger = Ledger()
        self.memory = SimMemory(
            {"host": total_host_bytes, "device": total_bytes}, self._ledger, is_unified=is_unified
        )
        self._processes = SimProcesses(self.memory)
        self._streams: list[SimStream] = []
        self._numbers = itertools.count()
        self._fault: tuple[float, DeviceError] | None = None  # laid, not yet sprung
        self._sticky: DeviceError | None = None

    # --- time -------------------------------------------------------------------------------------

    def next_due_s(self) -> float:
        """Return when something happens next; infinity when nothing is enqueued."""
        due_s = min((stream.due[0] for stream in self._streams), default=math.inf)
        return min(due_s, self._fault[0]) if self._fault else due_s

    def step(self) -> bool:
        """Let the one thing happen that is next in time; False when there is none."""
        if self.next_due_s() == math.inf:
            return False
        self._end_next(min(self._streams, key=lambda stream: stream.due, default=None))
        return True

    def complete_next(self, stream: SimStream) -> None:
        """Let the next item of this stream end, however much later that is than other streams'."""
        assert stream.items, f"nothing is enqueued on {stream.name}"
        self._end_next(stream)

    def run_until(self, now: float) -> None:
        """Let everything happen that is due until `now`, and then be it `now`."""
        while self.next_due_s() <= now:
            self.step()
        self.now = max(self.now, now)

    def run_until_done(self, event: SimEvent) -> None:
        """Let time pass until the event is done, and no longer."""
        while not event.is_done():
            assert self.step(), f"{event.name} will never be done: nothing is enqueued"

    def run_until_idle(self) -> None:
        """Let everything happen that is enqueued."""
        while any(stream.items for stream in self._streams):
            self.step()

    def _end_next(self, stream: SimStream | None) -> None:
        due_s = stream.due[0] if stream else math.inf
        if self._fault and self._fault[0] <= due_s:
            fault_s, self._sticky = self._fault
            self._fault = None
            self.now = max(self.now, fault_s)
            for dead in self._streams:
                dead.items.clear()  # what did not end before the fault never has an effect
            self.tell()
        elif stream:
            self.now = max(self.now, due_s)
            stream.run_next()

    # --- faults -----------------------------------------------------------------------------------

    def fail_launch(self, error: Exception, *, after: int = 0, is_refused: bool = False) -> None:
        """Let one launch fail, after so many that do not.

        Args:
            error: What is raised, by the next event's `is_done()`.
            after: Launches that go well before.
            is_refused: Raised by `launch` itself, as on a GPU; then nothing is enqueued.
        """
        self.launch_trap.lay((error, is_refused), after=after)

    def fail_capture(self, error: Exception, *, after: int = 0) -> None:
        """Let one capture raise, after so many that do not."""
        self.capture_trap.lay(error, after=after)

    def fail_alloc(self, *, after: int = 0) -> None:
        """Let one allocation, of either place, find no memory, after so many that do."""
        self.memory.trap.lay(True, after=after)

    def fail_device(self, at_s: float | None = None) -> None:
        """Let the device die for good with an illegal address, now or when time comes to `at_s`."""
        error = DeviceError(
            "the device read or wrote an illegal address: restart the process",
            code=700,
            name="cudaErrorIllegalAddress",
            sticky=True,
        )
        self._fault = (self.now if at_s is None else at_s, error)
        if self._fault[0] <= self.now:
            self._end_next(None)

    # --- what a test looks at, and the streams use ------------------------------------------------

    def leaks(self) -> list[str]:
        """Return the names of what is open, oldest first."""
        return self._ledger.names()

    def bytes_at(self, ptr: int, size_bytes: int) -> NDArray[np.uint8]:
        """Return (size_bytes,) uint8 at an address of either place, writable.

        Raises:
            AssertionError: The bytes are not inside one open buffer.
        """
        return self.memory.bytes_at(ptr, size_bytes)

    def share_memory(self, size_bytes: int) -> SimForeign:
        """Let another process share memory; its `handle` opens it."""
        return self._processes.share_memory(size_bytes)

    def tell(self) -> None:
        """Call `on_progress`."""
        if self.on_progress is not None:
            self.on_progress()

    def next_number(self) -> int:
        """Return the number of the next item to be enqueued."""
        return next(self._numbers)

    def forget(self, stream: SimStream) -> None:
        """Drop a stream that is closed."""
        self._streams.remove(stream)

    # --- the device -------------------------------------------------------------------------------

    def open_stream(self, *, priority: int = 0) -> SimStream:
        """Open a stream; the priority means nothing here."""
        self.check()
        stream = SimStream(self, self._ledger, priority)
        self._streams.append(stream)
        return stream

    def open_event(self, *, is_timed: bool = False) -> SimEvent:
        """Open an event; only timed ones can be used in `elapsed_s`."""
        self.check()
        return SimEvent(self, self._ledger, is_timed=is_timed)

    def elapsed_s(self, start: Event, end: Event) -> float:
        """Return the virtual seconds between two timed events that are both done."""
        return flag_event.elapsed_s(start, end)

    def alloc_host(self, size_bytes: int) -> SimHostBuffer:
        """Allocate host memory, full of `FRESH`."""
        self.check()
        return SimHostBuffer(self.memory, size_bytes)

    def pin_host(self, address: int, size_bytes: int) -> SimPinnedRange:
        """Know host memory of others, so that copies may use it."""
        self.check()
        return SimPinnedRange(self.memory, address, size_bytes)

    def open_shared(self, handle: bytes) -> SimShared:
        """Open what another process has by `share_memory`."""
        self.check()
        if self.is_unified:
            raise DeviceError("a unified device has no memory of its own to share")
        return self._processes.open(handle)

    def alloc_device(self, size_bytes: int) -> SimDeviceBuffer:
        """Allocate device memory, full of `FRESH`."""
        self.check()
        return SimDeviceBuffer(self.memory, size_bytes)

    def memory_info(self) -> tuple[int, int]:
        """Return (free, total) bytes of device memory."""
        total_bytes = self.memory.total_bytes["device"]
        return total_bytes - self.memory.used_bytes["device"], total_bytes

    def bind_thread(self) -> None:
        """Do nothing: there is one device and one thread."""

    def check(self) -> None:
        """Raise the sticky DeviceError once `fail_device` has come true."""
        if self._sticky is not None:
            raise self._sticky

    def close(self) -> None:
        """Close the device.

        Raises:
            AssertionError: Something that it handed out is still open.
        """
        leaks = self.leaks()
        assert not leaks, f"the device is closed before {', '.join(leaks)}"
