"""A GPU under test: streams are held by a word in pinned memory that the GPU waits for.

Imports cuda-bindings: only to be imported where a GPU was found.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from cuda.bindings import driver
from cuda.bindings import runtime as rt

from headrace.device.base import Stream
from headrace.device.cudart import CudartDevice
from helpers.cuda_checked import checked
from helpers.device_rig import Rig


class Latch:
    """Holds streams on the GPU without a kernel: what is enqueued behind it waits for the word."""

    def __init__(self) -> None:
        self._address: int = checked(rt.cudaHostAlloc(4, rt.cudaHostAllocMapped))
        self._word = ctypes.c_uint32.from_address(self._address)
        self._word.value = 0
        self._device_address: int = checked(rt.cudaHostGetDevicePointer(self._address, 0))

    def hold(self, stream: Stream) -> None:
        """Let everything enqueued from now on wait."""
        until_equal = int(driver.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_EQ)
        raw = driver.CUstream(int(stream.handle))
        checked(driver.cuStreamWaitValue32(raw, self._device_address, 1, until_equal))

    def let_go(self) -> None:
        """Let the streams go on."""
        self._word.value = 1

    def free(self) -> None:
        """Give the word back; no stream may wait for it any more."""
        checked(rt.cudaFreeHost(self._address))


class CudartRig(Rig):
    """GPU 0."""

    def __init__(self) -> None:
        self.gpu = CudartDevice.open(0)
        super().__init__(self.gpu)
        self._latches = self.keep(_Latches())  # kept first, so freed last

    def hold(self, stream: Stream) -> Callable[[], None]:
        latch = Latch()
        self._latches.append(latch)
        self.opened.callback(latch.let_go)  # after the stream, so before it is closed
        latch.hold(stream)
        return latch.let_go


class _Latches(list[Latch]):
    def close(self) -> None:
        for latch in self:
            latch.free()
