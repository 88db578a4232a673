"""Work of known duration on a GPU, and the GPU's clock on the host's: for measuring the poller.

The kernel looks at the GPU's nanosecond clock until its time is up and hands out when it began and
ended, so a reply itself says when the work was done. Imports cuda-bindings.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from cuda.bindings import driver
from cuda.bindings import runtime as rt

from headrace.device.base import Stream
from headrace.engines.base import Shape, Signature, TensorSpec
from helpers.cuda_checked import checked
from helpers.cuda_core_rig import CudaAddOneContext

# spin: src holds a duration in ns; dst gets the clock at its begin and at its end. One thread.
# echo: answers each new number at src with the clock at dst, `n` times; for comparing clocks.
KERNELS = b"""
.version 7.0
.target sm_75
.address_size 64
.visible .entry spin(.param .u64 src, .param .u64 dst, .param .u32 n)
{
    .reg .pred %p<3>;
    .reg .b32 %r<2>;
    .reg .b64 %rd<8>;
    mov.u32 %r1, %tid.x;
    setp.ne.u32 %p1, %r1, 0;
    @%p1 bra DONE;
    mov.u64 %rd1, %globaltimer;
    ld.param.u64 %rd2, [src];
    ld.param.u64 %rd3, [dst];
    ld.global.u64 %rd4, [%rd2];
AGAIN:
    mov.u64 %rd5, %globaltimer;
    sub.u64 %rd6, %rd5, %rd1;
    setp.lt.u64 %p2, %rd6, %rd4;
    @%p2 bra AGAIN;
    st.global.u64 [%rd3], %rd1;
    st.global.u64 [%rd3+8], %rd5;
DONE:
    ret;
}
.visible .entry echo(.param .u64 src, .param .u64 dst, .param .u32 n)
{
    .reg .pred %p<4>;
    .reg .b32 %r<5>;
    .reg .b64 %rd<5>;
    mov.u32 %r1, %tid.x;
    setp.ne.u32 %p1, %r1, 0;
    @%p1 bra DONE;
    ld.param.u64 %rd1, [src];
    ld.param.u64 %rd2, [dst];
    ld.param.u32 %r2, [n];
    mov.u32 %r3, 1;
NEXT:
    ld.volatile.global.u32 %r4, [%rd1];
    setp.ne.u32 %p2, %r4, %r3;
    @%p2 bra NEXT;
    mov.u64 %rd3, %globaltimer;
    st.volatile.global.u64 [%rd2], %rd3;
    membar.sys;
    add.u32 %r3, %r3, 1;
    setp.le.u32 %p3, %r3, %r2;
    @%p3 bra NEXT;
DONE:
    ret;
}
\0"""
NUM_ECHOES = 400
MAX_LOOKS = 20_000_000  # some seconds
SPIN_BYTES = 16  # in: duration, unused; out: begin, end


class CudaSpin:
    """An engine whose work takes as long as its input says."""

    platform = "kernel"
    is_blocking = False
    weights_bytes = 0
    profile_rows: tuple[int, ...] = ()
    signature = Signature(
        (TensorSpec("duration", "UINT8", (SPIN_BYTES,)),),
        (TensorSpec("times", "UINT8", (SPIN_BYTES,)),),
    )

    def __init__(self) -> None:
        self._module = checked(driver.cuModuleLoadData(KERNELS))
        self.kernel = checked(driver.cuModuleGetFunction(self._module, b"spin"))
        self.echo = checked(driver.cuModuleGetFunction(self._module, b"echo"))

    def trial_shapes(self) -> Sequence[tuple[Shape, ...]]:
        """Return the only shape."""
        return [((SPIN_BYTES,),)]

    def open_context(self, stream: Stream) -> CudaAddOneContext:
        """Open a context for one stream."""
        return CudaAddOneContext(self.kernel, stream)

    def close(self) -> None:
        """Unload the kernels."""
        checked(driver.cuModuleUnload(self._module))


def gpu_clock_offset_ns(engine: CudaSpin, clock_ns: Callable[[], int] = time.monotonic_ns) -> int:
    """Return what to add to the GPU's clock to get the host's; off by half a round trip at most."""
    flags = rt.cudaHostAllocMapped
    asked_at, told_at = checked(rt.cudaHostAlloc(4, flags)), checked(rt.cudaHostAlloc(8, flags))
    asked, told = ctypes.c_uint32.from_address(asked_at), ctypes.c_uint64.from_address(told_at)
    asked.value = told.value = 0
    arguments: list[npt.NDArray[Any]] = [
        np.array([checked(rt.cudaHostGetDevicePointer(asked_at, 0))], np.uint64),
        np.array([checked(rt.cudaHostGetDevicePointer(told_at, 0))], np.uint64),
        np.array([NUM_ECHOES], np.uint32),
    ]
    pointers = np.array([argument.ctypes.data for argument in arguments], np.uint64)
    stream = checked(driver.cuStreamCreate(1))
    checked(
        driver.cuLaunchKernel(engine.echo, 1, 1, 1, 1, 1, 1, 0, stream, pointers.ctypes.data, 0)
    )
    trips = []
    for number in range(1, NUM_ECHOES + 1):
        told.value = 0
        sent_at = clock_ns()
        asked.value = number
        looks = 0
        while not told.value:
            looks += 1
            assert looks < MAX_LOOKS, "the kernel does not answer"
        back_at = clock_ns()
        trips.append((back_at - sent_at, (sent_at + back_at) // 2 - told.value))
    checked(driver.cuStreamSynchronize(stream))
    checked(driver.cuStreamDestroy(stream))
    checked(rt.cudaFreeHost(asked_at))
    checked(rt.cudaFreeHost(told_at))
    return min(trips)[1]
