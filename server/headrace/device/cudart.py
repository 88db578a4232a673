"""A GPU through the CUDA runtime: the only file that imports cuda-bindings.

Rules
- Every call returns a status that is looked at; `DeviceError` carries what it says.
- Calls of the hot path (copy, record, query) are made with the binding's own handle objects, which
  are cheaper than integers, and compare their status by identity: enum members are singletons.
- No Python runs in a CUDA callback (it deadlocks with the GIL), so progress can only be polled for.
- A sticky error, whoever meets it, makes `check()` raise from then on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any
from uuid import UUID

from cuda.bindings import driver
from cuda.bindings import runtime as rt

from headrace.device.base import DevicePtr, Event, HostPtr, StreamHandle
from headrace.device.cudart_errors import count_gpus, status_error
from headrace.device.cudart_graph import CudartGraph, capture
from headrace.device.cudart_memory import CudartPinnedRange, DeviceMemory, PinnedBuffer
from headrace.device.cudart_shared import CudartSharedBuffer, can_open
from headrace.device.event_rules import NEVER_RECORDED, check_timed
from headrace.device.ledger import STREAM_METHODS, Ledger, seal
from headrace.errors import DeviceError

log = logging.getLogger(__name__)

_SUCCESS = rt.cudaError_t.cudaSuccess
_NOT_READY = rt.cudaError_t.cudaErrorNotReady
_H2D = rt.cudaMemcpyKind.cudaMemcpyHostToDevice
_D2H = rt.cudaMemcpyKind.cudaMemcpyDeviceToHost
_D2D = rt.cudaMemcpyKind.cudaMemcpyDeviceToDevice
_memcpy_async = rt.cudaMemcpyAsync
_event_record = rt.cudaEventRecord
_event_query = rt.cudaEventQuery
_get_last_error = rt.cudaGetLastError


def count_devices() -> tuple[int, DeviceError | None]:
    """Return how many GPUs there are, and why when there are none; see `count_gpus`."""
    return count_gpus(rt)


class CudartEvent:
    """A CUDA event; `raw` is the binding's object for it."""

    def __init__(self, device: CudartDevice, *, is_timed: bool) -> None:
        flags = rt.cudaEventDefault if is_timed else rt.cudaEventDisableTiming
        self.raw = device.call("opening an event", rt.cudaEventCreateWithFlags, flags)
        self.is_timed = is_timed
        self.is_recorded = False
        self.is_closed = False
        self.name = device.ledger.enter("event")
        self._device = device

    def is_done(self) -> bool:
        """Say whether the last recording is done; never waits."""
        status = _event_query(self.raw)[0]
        if status is _NOT_READY:
            _get_last_error()  # a normal answer, but it stays behind as the thread's last error
            return False
        if status is not _SUCCESS:
            raise self._device.fault(status, "asking whether work is done")
        if not self.is_recorded:  # CUDA calls it complete
            raise DeviceError(NEVER_RECORDED)
        return True

    def close(self) -> None:
        """Destroy the event; a second call does nothing."""
        if not self.is_closed:
            self.is_closed = True
            self._device.ledger.strike(self.name)
            seal(self, self.name, ["is_done"])
            self._device.release("closing an event", rt.cudaEventDestroy, self.raw)


class CudartStream:
    """A CUDA stream that no default stream waits for; `raw` is the binding's object for it."""

    def __init__(self, device: CudartDevice, priority: int) -> None:
        self.raw = device.call(
            "opening a stream", rt.cudaStreamCreateWithPriority, rt.cudaStreamNonBlocking, priority
        )
        self.handle = StreamHandle(int(self.raw))
        self.name = device.ledger.enter("stream")
        self._device = device
        self._is_closed = False

    def copy_h2d(self, dst: DevicePtr, src: HostPtr, size_bytes: int) -> None:
        """Enqueue a copy from pinned to device memory; 0 bytes enqueues nothing."""
        if size_bytes:
            status = _memcpy_async(dst, src, size_bytes, _H2D, self.raw)[0]
            if status is not _SUCCESS:
                raise self._device.fault(status, f"copying {size_bytes} bytes to the device")

    def copy_d2h(self, dst: HostPtr, src: DevicePtr, size_bytes: int) -> None:
        """Enqueue a copy from device to pinned memory; 0 bytes enqueues nothing."""
        if size_bytes:
            status = _memcpy_async(dst, src, size_bytes, _D2H, self.raw)[0]
            if status is not _SUCCESS:
                raise self._device.fault(status, f"copying {size_bytes} bytes from the device")

    def copy_d2d(self, dst: DevicePtr, src: DevicePtr, size_bytes: int) -> None:
        """Enqueue a copy from device to device memory; 0 bytes enqueues nothing."""
        if size_bytes:
            status = _memcpy_async(dst, src, size_bytes, _D2D, self.raw)[0]
            if status is not _SUCCESS:
                raise self._device.fault(status, f"copying {size_bytes} bytes within the device")

    def clear(self, dst: DevicePtr, size_bytes: int) -> None:
        """Enqueue zeros over device memory; 0 bytes enqueues nothing."""
        if size_bytes:
            status = rt.cudaMemsetAsync(dst, 0, size_bytes, self.raw)[0]
            if status is not _SUCCESS:
                raise self._device.fault(status, f"clearing {size_bytes} bytes of the device")

    def launch(self, work: Callable[[], None]) -> None:
        """Call `work`, which enqueues by itself."""
        work()

    def capture(self, work: Callable[[], None]) -> CudartGraph:
        """Return what `work` enqueues as a graph; see `CapturableStream`."""
        return capture(rt, self._device, self, work)

    def record(self, event: Event) -> None:
        """Record the event behind all the work enqueued so far."""
        assert isinstance(event, CudartEvent), "an event of another device"
        assert not event.is_closed, f"{event.name} is recorded after its close()"
        status = _event_record(event.raw, self.raw)[0]
        if status is not _SUCCESS:
            raise self._device.fault(status, "recording an event")
        event.is_recorded = True

    def synchronize(self) -> None:
        """Wait for everything enqueued; for set-up, drain and tests only."""
        self._device.call("waiting for a stream", rt.cudaStreamSynchronize, self.raw)

    def close(self) -> None:
        """Finish what is enqueued, then destroy the stream; a second call does nothing."""
        if not self._is_closed:
            self._is_closed = True
            self._device.ledger.strike(self.name)
            # Sealed first: the binding takes a dead handle, and None for the default stream.
            seal(self, self.name, (*STREAM_METHODS, "capture"))
            self._device.release("draining a stream", rt.cudaStreamSynchronize, self.raw)
            self._device.release("closing a stream", rt.cudaStreamDestroy, self.raw)


class CudartDevice:
    """One GPU, by its primary context, which every other library of the process uses too."""

    kind = "cudart"
    is_unified = False
    on_progress: Callable[[], None] | None = None

    def __init__(self, index: int) -> None:
        self.index = index
        self.name = ""  # as the driver calls it
        self.uuid = ""  # as nvidia-smi writes it
        self.compute_capability = ""  # such as "9.0"
        self.opens_shared = False  # until it was asked
        self.ledger = Ledger()
        self._least_priority = self._greatest_priority = 0
        self._sticky: DeviceError | None = None
        self._probe: CudartStream | None = None  # asked by check(); nothing is ever enqueued on it

    @classmethod
    def open(cls, index: int) -> CudartDevice:
        """Open a GPU by CUDA's number.

        Raises:
            DeviceError: It is not there or does not work; says what to do.
        """
        num_devices, error = count_devices()
        if error is not None:
            raise error
        if index not in range(num_devices):
            doing = f"taking GPU {index} of {num_devices}, counted from 0"
            raise status_error(rt, rt.cudaError_t.cudaErrorInvalidDevice, doing)
        device = cls(index)
        properties = device.call("reading the GPU's name", rt.cudaGetDeviceProperties, index)
        device.name = properties.name.split(b"\0")[0].decode()
        device.uuid = f"GPU-{UUID(bytes=bytes(properties.uuid.bytes))}"
        device.compute_capability = f"{properties.major}.{properties.minor}"
        device._least_priority, device._greatest_priority = device.call(
            "reading the range of priorities", rt.cudaDeviceGetStreamPriorityRange
        )
        device.opens_shared = can_open(rt, index)
        device._probe = CudartStream(device, device._least_priority)
        return device

    def call(self, doing: str, function: Callable[..., Any], *args: Any) -> Any:
        """Make one call of set-up with this device current; return what it gives.

        Raises:
            DeviceError: It failed.
        """
        self.bind_thread()
        status, *results = function(*args)
        if status is not _SUCCESS:
            raise self.fault(status, doing)
        return results[0] if len(results) == 1 else results

    def release(self, doing: str, function: Callable[..., Any], *args: Any) -> None:
        """Make one call of tear-down: a failure is logged, so that the rest is torn down too."""
        status = function(*args)[0]
        if status is not _SUCCESS:
            log.warning("%s", self.fault(status, doing))

    def fault(self, status: Any, doing: str) -> DeviceError:
        """Return the error for a status, and remember it when it is sticky."""
        error = status_error(rt, status, f"{doing} (GPU {self.index})")
        if error.sticky and self._sticky is None:
            self._sticky = error
        return error

    def open_stream(self, *, priority: int = 0) -> CudartStream:
        """Open a stream; 0 is the least priority, less is more urgent, clamped as in CUDA."""
        urgency = min(max(priority, self._greatest_priority), self._least_priority)
        return CudartStream(self, urgency)

    def open_event(self, *, is_timed: bool = False) -> CudartEvent:
        """Open an event; untimed ones are quicker to ask."""
        return CudartEvent(self, is_timed=is_timed)

    def elapsed_s(self, start: Event, end: Event) -> float:
        """Return the seconds between two timed events that are both done; else a DeviceError."""
        raw = []
        for event in (start, end):
            assert isinstance(event, CudartEvent), "an event of another device"
            check_timed(event)
            raw.append(event.raw)
        elapsed_ms = self.call("timing two events", rt.cudaEventElapsedTime, *raw)
        return float(elapsed_ms) / 1e3

    def alloc_host(self, size_bytes: int) -> PinnedBuffer:
        """Pin host memory, for all GPUs of the process."""
        return PinnedBuffer(rt, self, size_bytes)

    def pin_host(self, address: int, size_bytes: int) -> CudartPinnedRange:
        """Pin memory that is there already; see `Device.pin_host`."""
        return CudartPinnedRange(rt, self, address, size_bytes)

    def open_shared(self, handle: bytes) -> CudartSharedBuffer:
        """Open memory of another process; see `Device.open_shared`."""
        return CudartSharedBuffer(rt, driver, self, handle)

    def alloc_device(self, size_bytes: int) -> DeviceMemory:
        """Allocate device memory."""
        return DeviceMemory(rt, self, size_bytes)

    def memory_info(self) -> tuple[int, int]:
        """Return (free, total) bytes of device memory, of all processes together."""
        free_bytes, total_bytes = self.call("asking for free memory", rt.cudaMemGetInfo)
        return free_bytes, total_bytes

    def bind_thread(self) -> None:
        """Make this device current for the calling thread."""
        status = rt.cudaSetDevice(self.index)[0]
        if status is not _SUCCESS:
            raise self.fault(status, "making the GPU current for a thread")

    def check(self) -> None:
        """Raise the sticky error; when none is known, ask the GPU, which takes a microsecond.

        A stream on which nothing was ever enqueued fails only with the whole context.
        """
        if self._sticky is None and self._probe is not None:
            status = rt.cudaStreamQuery(self._probe.raw)[0]
            # 900 to 909 refuse to answer while a graph is captured, and say nothing of the context.
            if status is not _SUCCESS and int(status) not in range(900, 910):
                error = self.fault(status, "asking whether the GPU still works")
                error.sticky = True
                self._sticky = error
        if self._sticky is not None:
            raise self._sticky

    def close(self) -> None:
        """Close the device, naming what is open in the log; its context stays, for others."""
        if self._probe is not None:
            self._probe.close()
            self._probe = None
            if leaks := self.ledger.names():
                log.warning("GPU %d is closed before %s", self.index, ", ".join(leaks))
