"""The core on a real GPU: slots whose engine is a small kernel of known arithmetic.

Imports cuda-bindings: only to be imported where a GPU was found.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from cuda.bindings import driver

from headrace.device.base import Stream
from headrace.device.cudart import CudartDevice
from headrace.engines.base import Binding, Kind, Layout, Shape, Signature, TensorSpec
from headrace.engines.layout import pad_layout, plan_layout
from headrace.metrics import Metrics
from headrace.scheduling.admission import Admission
from headrace.scheduling.batcher import SingleBatcher
from headrace.scheduling.line import Line
from headrace.scheduling.request import Request
from headrace.scheduling.scheduler import Scheduler
from headrace.slots.batch import Output
from headrace.slots.blocks import BlockPool
from headrace.slots.poller import Poller
from headrace.slots.pool import SlotPool
from headrace.slots.slot import Slot
from helpers.cuda_checked import checked
from helpers.delay_batcher import DelayBatcher

# dst[i] = src[i] + 1 for n bytes; the driver compiles it for the GPU at hand.
ADD_ONE = b"""
.version 7.0
.target sm_75
.address_size 64
.visible .entry add_one(.param .u64 src, .param .u64 dst, .param .u32 n)
{
    .reg .pred %p<2>;
    .reg .b16 %h<3>;
    .reg .b32 %r<6>;
    .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [src];
    ld.param.u64 %rd2, [dst];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.u32 %r5, %r2, %r3, %r4;
    setp.ge.u32 %p1, %r5, %r1;
    @%p1 bra DONE;
    cvt.u64.u32 %rd3, %r5;
    add.u64 %rd4, %rd1, %rd3;
    add.u64 %rd5, %rd2, %rd3;
    ld.global.u8 %h1, [%rd4];
    add.u16 %h2, %h1, 1;
    st.global.u8 [%rd5], %h2;
DONE:
    ret;
}
\0"""
THREADS = 256


class CudaAddOne:
    """An engine: every output byte is the input byte plus 1, modulo 256."""

    platform = "kernel"
    is_blocking = False
    weights_bytes = 0
    profile_rows: tuple[int, ...] = ()
    signature = Signature(
        (TensorSpec("x", "UINT8", (None,)),), (TensorSpec("y", "UINT8", (None,)),)
    )

    def __init__(self) -> None:
        self._module = checked(driver.cuModuleLoadData(ADD_ONE))
        self.kernel = checked(driver.cuModuleGetFunction(self._module, b"add_one"))

    def use_profiles(self, wanted: Sequence[int]) -> None:
        """There are none."""

    def trial_shapes(self) -> Sequence[tuple[Shape, ...]]:
        """Return one small shape."""
        return [((1,),)]

    def check_inputs(self, shapes: Sequence[Shape]) -> None:
        """Take every shape."""

    def output_shapes(self, shapes: Sequence[Shape]) -> tuple[Shape, ...]:
        """Return the inputs' shapes."""
        return tuple(shapes)

    def open_context(self, stream: Stream) -> CudaAddOneContext:
        """Open a context for one stream."""
        return CudaAddOneContext(self.kernel, stream)

    def close(self) -> None:
        """Unload the kernel."""
        checked(driver.cuModuleUnload(self._module))


class CudaAddOneContext:
    """Launches the kernel on its stream."""

    def __init__(self, kernel: Any, stream: Stream) -> None:
        self._kernel = kernel
        self._stream = driver.CUstream(int(stream.handle))

    def bind(
        self, layout: Layout, input_ptrs: Sequence[int], output_ptrs: Sequence[int]
    ) -> Binding:
        """Lay the kernel's arguments out once."""
        (size,) = layout.input_sizes
        arguments: list[npt.NDArray[Any]] = [
            np.array([input_ptrs[0]], np.uint64),
            np.array([output_ptrs[0]], np.uint64),
            np.array([size], np.uint32),
        ]
        pointers = np.array([argument.ctypes.data for argument in arguments], np.uint64)
        binding = Binding(layout, tuple(input_ptrs), tuple(output_ptrs))
        binding.prepared = (arguments, pointers, size)
        return binding

    def enqueue(self, binding: Binding) -> None:
        """Launch; returns before the kernel runs."""
        _, pointers, size = binding.prepared
        if size:
            grid = -(-size // THREADS)
            checked(
                driver.cuLaunchKernel(
                    self._kernel,
                    grid,
                    1,
                    1,
                    THREADS,
                    1,
                    1,
                    0,
                    self._stream,
                    pointers.ctypes.data,
                    0,
                )
            )

    def close(self) -> None:
        """Nothing to close."""


class CudaRig:
    """Slots of one model on GPU 0, and a scheduler that is stepped by hand."""

    def __init__(
        self,
        *,
        num_slots: int = 4,
        budget_bytes: int = 64 << 20,
        make_engine: Callable[[CudartDevice], Any] = lambda _: CudaAddOne(),
    ) -> None:
        self.device = CudartDevice.open(0)
        self.blocks = BlockPool(self.device, budget_bytes)
        self.engine = make_engine(self.device)
        self.streams = [self.device.open_stream() for _ in range(num_slots)]
        self.slots = [
            Slot(
                index,
                self.device,
                stream,
                self.engine.open_context(stream),
                clock=time.monotonic,
                has_marks=True,
            )
            for index, stream in enumerate(self.streams)
        ]
        self.pool = SlotPool(self.slots)
        self.metrics = Metrics().model("add_one", "1")
        self.line = Line("add_one", SingleBatcher(), self.pool, self.metrics, 100_000)
        self.poller = Poller()
        self.scheduler = Scheduler(
            self.blocks,
            self.poller,
            Admission(self.blocks, max_waiting_bytes=1 << 30),
            clock=time.monotonic,
        )
        self.scheduler.add_line(self.line)
        self.replies: dict[Request, list[bytes | Exception]] = {}
        self.kind: Kind | None = None
        self._layouts: dict[int, Layout] = {}

    def layout_for(self, size: int) -> Layout:
        """Return the one layout for payloads of this size."""
        if self.kind is not None:
            return self.kind.layout(size)
        return self._layouts.setdefault(size, plan_layout([(size,)], [size], [(size,)], [size]))

    def use_batches(self, max_rows: int, padded_to: Mapping[int, int] | None = None) -> None:
        """From now on every byte is a row, and what waits together runs together.

        Args:
            max_rows: Of a batch.
            padded_to: Rows → rows that are run in their place.
        """

        def plan(rows: int) -> Layout:
            layout = plan_layout([(rows,)], [rows], [(rows,)], [rows])
            if padded_to and rows in padded_to:
                padded = pad_layout(layout, kind.layout(padded_to[rows]))
                assert padded is not None
                layout = padded
            return replace(layout, kind=kind)

        self.kind = kind = Kind(plan)
        self.line.batcher = DelayBatcher(max_rows)

    def submit(self, payload: bytes) -> Request:
        """Submit a request."""
        now = time.monotonic()
        request = Request(
            self.line,
            self.layout_for(len(payload)),
            (payload,),
            rows=1 if self.kind is None else len(payload),
            deadline=None,
            received_at=now,
            parsed_at=now,
            on_end=self._on_end,
        )
        self.replies[request] = []
        self.scheduler.submit(request, now)
        return request

    def run(self, timeout_s: float = 30.0) -> None:
        """Step until nothing is left to do."""
        give_up_at = time.monotonic() + timeout_s
        while not self.scheduler.is_idle:
            self.scheduler.step(time.monotonic())
            assert time.monotonic() < give_up_at, "the core does not come to rest"

    def close(self) -> None:
        """Close in the order of the application."""
        self.scheduler.close()
        self.pool.close()
        self.engine.close()
        self.blocks.close()
        self.device.close()

    def _on_end(
        self, request: Request, outputs: Sequence[Output] | None, error: Exception | None
    ) -> None:
        if error is not None:
            self.replies[request].append(error)
        else:
            assert outputs is not None
            self.replies[request].append(bytes(outputs[0][1]))


def plus_one(payload: bytes) -> bytes:
    """Return the right answer."""
    return (np.frombuffer(payload, np.uint8) + np.uint8(1)).tobytes()
