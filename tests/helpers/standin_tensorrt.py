"""TensorRT's stand-in on a GPU: the fake's classes and refusals, with kernels in the place of runs.

Everything up to an enqueue is `fake_tensorrt`; here it puts two kernels on the stream: one writes
into the activation memory, one takes its time and then writes the outputs from there. So memory
that two running contexts share, a stale address or a stream that is not the slot's shows in the
results. As with TensorRT the first enqueue under new shapes allocates, which no capture takes.

Imports cuda-bindings: only to be imported where a GPU was found.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, Literal

import numpy as np
from cuda.bindings import driver

from headrace.device.cudart import CudartDevice
from helpers.cuda_checked import checked
from helpers.fake_tensorrt import IExecutionContext, TensorIOMode, World

Shape = tuple[int, ...]
Break = Literal["", "refuse", "half", "empty", "stale"]

# scale: dst[i] = factor * src[i] for n floats, after wait_ns.
# fill: dst[i] = the sum of the n floats of src, for m floats.
KERNELS = b"""
.version 7.0
.target sm_75
.address_size 64
.visible .entry scale(.param .u64 src, .param .u64 dst, .param .f32 factor, .param .u32 n,
                      .param .u64 wait_ns)
{
    .reg .pred %p<3>;
    .reg .f32 %f<4>;
    .reg .b32 %r<6>;
    .reg .b64 %rd<10>;
    ld.param.u64 %rd1, [src];
    ld.param.u64 %rd2, [dst];
    ld.param.f32 %f1, [factor];
    ld.param.u32 %r1, [n];
    ld.param.u64 %rd3, [wait_ns];
    mov.u64 %rd4, %globaltimer;
    add.u64 %rd4, %rd4, %rd3;
WAIT:
    mov.u64 %rd5, %globaltimer;
    setp.lt.u64 %p1, %rd5, %rd4;
    @%p1 bra WAIT;
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.u32 %r5, %r2, %r3, %r4;
    setp.ge.u32 %p2, %r5, %r1;
    @%p2 bra DONE;
    mul.wide.u32 %rd6, %r5, 4;
    add.u64 %rd7, %rd1, %rd6;
    add.u64 %rd8, %rd2, %rd6;
    ld.global.f32 %f2, [%rd7];
    mul.f32 %f3, %f2, %f1;
    st.global.f32 [%rd8], %f3;
DONE:
    ret;
}
.visible .entry fill(.param .u64 src, .param .u64 dst, .param .u32 n, .param .u32 m)
{
    .reg .pred %p<3>;
    .reg .f32 %f<3>;
    .reg .b32 %r<7>;
    .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [src];
    ld.param.u64 %rd2, [dst];
    ld.param.u32 %r1, [n];
    ld.param.u32 %r6, [m];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.u32 %r5, %r2, %r3, %r4;
    setp.ge.u32 %p1, %r5, %r6;
    @%p1 bra DONE;
    mov.f32 %f1, 0f00000000;
    mov.u32 %r4, 0;
SUM:
    setp.ge.u32 %p2, %r4, %r1;
    @%p2 bra STORE;
    mul.wide.u32 %rd3, %r4, 4;
    add.u64 %rd4, %rd1, %rd3;
    ld.global.f32 %f2, [%rd4];
    add.f32 %f1, %f1, %f2;
    add.u32 %r4, %r4, 1;
    bra SUM;
STORE:
    mul.wide.u32 %rd5, %r5, 4;
    add.u64 %rd6, %rd2, %rd5;
    st.global.f32 [%rd6], %f1;
DONE:
    ret;
}
\0"""
THREADS = 128


@dataclass(frozen=True)
class Run:
    """An enqueue that was accepted."""

    profile: int
    shapes: tuple[tuple[str, Shape], ...]
    is_captured: bool


class CudaWorld(World):
    """The outside of the stand-in on a GPU.

    Args:
        device: The GPU.
        wait_ns: How long the second kernel of each run waits before it writes.
    """

    def __init__(self, device: CudartDevice, wait_ns: int = 0) -> None:
        super().__init__(device)  # type: ignore[arg-type]
        self.wait_ns = wait_ns
        self.break_capture: Break = ""
        self.runs: list[Run] = []
        self._byte = checked(driver.cuMemAlloc(1))
        self._module = checked(driver.cuModuleLoadData(KERNELS))
        self._scale = checked(driver.cuModuleGetFunction(self._module, b"scale"))
        self._fill = checked(driver.cuModuleGetFunction(self._module, b"fill"))

    def close(self) -> None:
        """Unload the kernels."""
        checked(driver.cuMemFree(self._byte))
        checked(driver.cuModuleUnload(self._module))

    def check_memory(self, address: int, size_bytes: int) -> None:
        """Hold that this is memory that the driver has handed out and not got back."""
        status, base, room = driver.cuMemGetAddressRange(address)
        assert int(status) == 0, f"{size_bytes} bytes at {address:#x}: {status}"
        assert address + size_bytes <= int(base) + room

    def touch(self, handle: int) -> None:
        """Write a byte that nobody reads."""
        checked(driver.cuMemsetD8Async(self._byte, 0, 1, driver.CUstream(handle)))

    def enqueue(self, context: IExecutionContext, handle: int, outputs: dict[str, Shape]) -> bool:
        """Launch the kernels of a run; False where a launch or the set-up fails."""
        stream = driver.CUstream(handle)
        engine = context._engine
        inputs = list(engine._names(TensorIOMode.INPUT))
        shapes = tuple((name, context._shape_of(name)) for name in inputs)
        is_captured = int(checked(driver.cuStreamIsCapturing(stream))) != 0
        broken = self.break_capture if is_captured else ""
        if broken == "refuse":
            context._report("the engine cannot be captured")
            return False
        if getattr(context, "_planned", None) != shapes and not self._plan(context, shapes):
            return False
        self.runs.append(Run(context._profile, shapes, is_captured))
        if broken == "empty":
            return True
        run = self._run_fill if engine._plan["op"] == "fill" else self._run_double
        status = run(context, stream, inputs, outputs, broken)
        if int(status) != 0:
            context._report(f"a kernel cannot be launched: {status}")
        return int(status) == 0

    def _plan(self, context: IExecutionContext, shapes: Any) -> bool:
        """Set up for new shapes, which takes memory."""
        status, scratch = driver.cuMemAlloc(512)
        if int(status) != 0:
            context._report(f"the set-up for new shapes failed: {status}")
            return False
        checked(driver.cuMemFree(scratch))
        context._planned = shapes  # type: ignore[attr-defined]
        return True

    def _run_double(
        self,
        context: IExecutionContext,
        stream: Any,
        inputs: list[str],
        outputs: dict[str, Shape],
        broken: Break,
    ) -> Any:
        """Double every input, by way of the activation memory."""
        status: Any = 0
        for name, (output, shape) in zip(inputs, outputs.items(), strict=True):
            count, (scratch, room) = prod(shape), context._memory
            assert count * 4 <= room, "the plan asks for too little memory"
            if not count:
                continue
            source, target = context._addresses[name], context._addresses[output]
            status = self._launch_scale(stream, source, scratch, 2.0, count, 0)
            if broken == "half":
                return driver.cuMemAlloc(512)[0]  # not allowed in a capture
            if broken != "stale" and int(status) == 0:
                status = self._launch_scale(stream, scratch, target, 1.0, count, self.wait_ns)
            if int(status) != 0:
                break
        return status

    def _run_fill(
        self,
        context: IExecutionContext,
        stream: Any,
        inputs: list[str],
        outputs: dict[str, Shape],
        _broken: Break,
    ) -> Any:
        """The sum of x in every element of y; the values of the shape tensor were read before."""
        ((output, shape),) = outputs.items()
        count = prod(shape)
        if not count:
            return 0
        arguments = [
            np.array([context._addresses[inputs[0]]], np.uint64),
            np.array([context._addresses[output]], np.uint64),
            np.array([prod(context._shape_of(inputs[0]))], np.uint32),
            np.array([count], np.uint32),
        ]
        return self._launch(self._fill, stream, count, arguments)

    def _launch_scale(
        self, stream: Any, source: int, target: int, factor: float, count: int, wait_ns: int
    ) -> Any:
        arguments = [
            np.array([source], np.uint64),
            np.array([target], np.uint64),
            np.array([factor], np.float32),
            np.array([count], np.uint32),
            np.array([wait_ns], np.uint64),
        ]
        return self._launch(self._scale, stream, count, arguments)

    def _launch(self, kernel: Any, stream: Any, count: int, arguments: list[Any]) -> Any:
        pointers = np.array([each.ctypes.data for each in arguments], np.uint64)
        grid = -(-count // THREADS)
        return driver.cuLaunchKernel(
            kernel, grid, 1, 1, THREADS, 1, 1, 0, stream, pointers.ctypes.data, 0
        )[0]
