"""The CPU as a device: streams are worker threads, and memory is memory.

Engines read and write the staging blocks as they are (`is_unified`), so copies are rare here.
"""

from __future__ import annotations

import logging
import platform
import statistics
import threading
from collections.abc import Callable
from functools import cached_property
from time import perf_counter

from headrace.device import flag_event, host_memory
from headrace.device.base import DevicePtr, Event, HostPtr, SharedBuffer
from headrace.device.flag_event import FlagEvent
from headrace.device.host_memory import HostMemory, OpenRange
from headrace.device.host_stream import HostStream, InlineStream
from headrace.device.ledger import Ledger
from headrace.errors import DeviceError

log = logging.getLogger(__name__)

_NUM_HAND_OVERS = 50  # a median of so many is steady within a tenth, and takes some milliseconds


class HostDevice:
    """The machine's own processor.

    Args:
        index: Carried, and means nothing.
    """

    kind = "host"
    is_unified = True
    opens_shared = False

    def __init__(self, index: int = 0) -> None:
        self.index = index
        self.name = platform.machine()
        self.on_progress: Callable[[], None] | None = None
        self._ledger = Ledger()

    def open_stream(self, *, priority: int = 0) -> HostStream:  # noqa: ARG002 - threads have none
        """Open a stream with a worker thread of its own; the priority means nothing here."""
        return HostStream(self, self._ledger)

    def open_inline_stream(self) -> InlineStream:
        """Open a stream that runs everything at once on the caller's thread."""
        return InlineStream(self._ledger)

    def open_event(self, *, is_timed: bool = False) -> FlagEvent:
        """Open an event; only timed ones can be used in `elapsed_s`."""
        return FlagEvent(self._ledger, is_timed=is_timed)

    def elapsed_s(self, start: Event, end: Event) -> float:
        """Return the seconds between two timed events that are both done."""
        return flag_event.elapsed_s(start, end)

    def alloc_host(self, size_bytes: int) -> HostMemory[HostPtr]:
        """Allocate zeroed memory whose pages are all there."""
        return HostMemory(size_bytes, HostPtr, self._ledger)

    def pin_host(self, address: int, size_bytes: int) -> OpenRange:  # noqa: ARG002
        """Take the memory as it is: copies are the host's own."""
        return OpenRange(HostPtr(address))

    def open_shared(self, handle: bytes) -> SharedBuffer:  # noqa: ARG002
        """Refuse."""
        raise DeviceError("the host has no device memory that another process could share")

    def alloc_device(self, size_bytes: int) -> HostMemory[DevicePtr]:
        """Allocate the same memory as `alloc_host` does."""
        return HostMemory(size_bytes, DevicePtr, self._ledger)

    def memory_info(self) -> tuple[int, int]:
        """Return (free, total) bytes of physical memory."""
        return host_memory.memory_info()

    def bind_thread(self) -> None:
        """Do nothing: every thread sees the same processor."""

    def check(self) -> None:
        """Do nothing: a processor that can run this can work."""

    def hand_over_s(self) -> float:
        """Return the seconds from an empty launch to its `on_progress`: what a worker thread costs.

        Measured on the first call, on a stream of its own. A model that runs shorter than this is
        better served by an inline stream.
        """
        return self._hand_over_s

    def close(self) -> None:
        """Close the device; names what was not closed before it in the log."""
        if leaks := self._ledger.names():
            log.warning("the host device is closed before %s", ", ".join(leaks))

    @cached_property
    def _hand_over_s(self) -> float:
        device = HostDevice(self.index)  # nobody else's on_progress is called
        arrived = threading.Event()
        device.on_progress = arrived.set
        stream, event = device.open_stream(), device.open_event()
        times_s = []
        for _ in range(_NUM_HAND_OVERS):
            start_s = perf_counter()
            stream.launch(_nothing)
            stream.record(event)
            arrived.wait()
            times_s.append(perf_counter() - start_s)
            arrived.clear()
        stream.close()
        event.close()
        return statistics.median(times_s)


def _nothing() -> None:
    """Take no time."""
