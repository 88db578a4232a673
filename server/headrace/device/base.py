"""What a device must offer: streams, events and memory. The bottom layer; it knows of no model.

Rules
- Every buffer, stream and event has one owner and an idempotent `close()`.
- `Stream` calls only enqueue; nothing but `synchronize()` waits, and that is for set-up and drain.
- `Event.is_done()` has three answers: True, False, or an error that is raised. An event that was
  never recorded is an error of ours (CUDA would call it complete), so it raises too.
- A copy may take effect as late as the event recorded after it: until that event is done, neither
  side of the copy may be reused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NewType, Protocol, runtime_checkable

StreamHandle = NewType("StreamHandle", int)
EventHandle = NewType("EventHandle", int)
DevicePtr = NewType("DevicePtr", int)
HostPtr = NewType("HostPtr", int)

ALIGNMENT_BYTES = 512
"""Alignment of every buffer: TensorRT's set_device_memory wants 512 in fact, I/O tensors 256."""


class HostBuffer(Protocol):
    """Host memory that the device copies directly: pinned where there is a GPU."""

    ptr: HostPtr
    size_bytes: int
    view: memoryview  # (size_bytes,) uint8, writable

    def close(self) -> None:
        """Give the memory back; a second call does nothing."""


class PinnedRange(Protocol):
    """Host memory of others that the device copies directly; the host itself need not touch it."""

    ptr: HostPtr

    def close(self) -> None:
        """Let go of it; a second call does nothing. No copy may be under way."""


class DeviceBuffer(Protocol):
    """Memory that engines read and write."""

    ptr: DevicePtr
    size_bytes: int

    def close(self) -> None:
        """Give the memory back; a second call does nothing."""


class SharedBuffer(Protocol):
    """Device memory of another process, which it shares; how long it is there is that one's matter.

    Engines do not use it: it is copied from and to.
    """

    ptr: DevicePtr
    size_bytes: int  # that lie from `ptr` on

    def close(self) -> None:
        """Let go of it; a second call does nothing. No copy may be under way."""


class Event(Protocol):
    """A marker on a stream: done when all the work enqueued before it is done."""

    def is_done(self) -> bool:
        """Say whether the last recording is done; never waits.

        Raises:
            DeviceError: The device failed, or the event was never recorded.
            EngineError: Work launched on the stream before the recording failed.
        """

    def close(self) -> None:
        """Destroy the event; a second call does nothing."""


class Stream(Protocol):
    """An in-order queue of device work."""

    handle: StreamHandle

    def copy_h2d(self, dst: DevicePtr, src: HostPtr, size_bytes: int) -> None:
        """Enqueue a copy from host to device memory; 0 bytes enqueues nothing."""

    def copy_d2h(self, dst: HostPtr, src: DevicePtr, size_bytes: int) -> None:
        """Enqueue a copy from device to host memory; 0 bytes enqueues nothing."""

    def copy_d2d(self, dst: DevicePtr, src: DevicePtr, size_bytes: int) -> None:
        """Enqueue a copy within device memory, shared or not; 0 bytes enqueues nothing."""

    def clear(self, dst: DevicePtr, size_bytes: int) -> None:
        """Enqueue zeros over device memory; 0 bytes enqueues nothing."""

    def launch(self, work: Callable[[], None]) -> None:
        """Run `work` in stream order.

        On a GPU it is called at once, because it enqueues by itself, and what it raises is raised
        here. On host and sim it *is* the work: it runs when its turn comes, and what it raises is
        raised by the next recorded event's `is_done()`.
        """

    def record(self, event: Event) -> None:
        """Record the event behind all the work enqueued so far."""

    def synchronize(self) -> None:
        """Wait for everything enqueued; for set-up, drain and tests only."""

    def close(self) -> None:
        """Finish what is enqueued, then destroy the stream; a second call does nothing."""


class Graph(Protocol):
    """Work that was captured from a stream; it is launched as a whole, on that stream only."""

    def launch(self) -> None:
        """Enqueue all of it behind what is on the stream, with the addresses of its capture."""

    def close(self) -> None:
        """Destroy the graph; a second call does nothing. It must not be in flight."""


@runtime_checkable
class CapturableStream(Stream, Protocol):
    """A stream whose work can be captured in a graph; not every device has it."""

    def capture(self, work: Callable[[], None]) -> Graph:
        """Let `work` enqueue without running what it enqueues, and return that as a graph.

        The stream must be idle, and `work` must have run on it before: what it sets up on its first
        run cannot be captured. Whatever fails, the stream is as usable afterwards as before.

        Raises:
            DeviceError: The work cannot be captured, or nothing came of it.
            Exception: Whatever `work` raised.
        """


class Device(Protocol):
    """One GPU, or what stands in for it."""

    kind: str  # "cudart", "host" or "sim"
    index: int
    is_unified: bool  # engines use host memory as it is: no copies, the block is the device buffer
    opens_shared: bool  # `open_shared` can work here
    on_progress: (
        Callable[[], None] | None
    )  # called from any thread when an event may have become done;
    # None where progress can only be polled for (cudart)

    def open_stream(self, *, priority: int = 0) -> Stream:
        """Open a stream that is not synchronized with any default stream."""

    def open_event(self, *, is_timed: bool = False) -> Event:
        """Open an event; only timed ones can be used in `elapsed_s`."""

    def elapsed_s(self, start: Event, end: Event) -> float:
        """Return the seconds between two timed events that are both done."""

    def alloc_host(self, size_bytes: int) -> HostBuffer:
        """Allocate host memory that the device copies directly.

        Raises:
            DeviceError: The memory cannot be had; says how much was asked for and what limits it.
        """

    def pin_host(self, address: int, size_bytes: int) -> PinnedRange:
        """Let the device copy host memory that is there already, and stays until `close`.

        Raises:
            DeviceError: It cannot be pinned.
        """

    def open_shared(self, handle: bytes) -> SharedBuffer:
        """Open device memory that another process shares; takes long.

        Args:
            handle: What stands for it in every process of the machine; CUDA's have 64 bytes. Who
                has it can read and write the memory, so no text repeats it.

        Raises:
            DeviceError: It cannot be opened; says what may be wrong.
        """

    def alloc_device(self, size_bytes: int) -> DeviceBuffer:
        """Allocate device memory.

        Raises:
            DeviceError: The memory cannot be had; says how much was asked for and what is free.
        """

    def memory_info(self) -> tuple[int, int]:
        """Return (free, total) bytes of device memory."""

    def bind_thread(self) -> None:
        """Make this device current for the calling thread (CUDA keeps it per thread)."""

    def check(self) -> None:
        """Raise the sticky DeviceError if the device can do no more work."""

    def close(self) -> None:
        """Close the device; whatever it handed out must be closed before."""
