"""Runs an engine as slots do, on whatever device it was opened on, without the scheduler.

For the trial of a real TensorRT; its own test runs it on the virtual device.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from headrace.device.base import (
    CapturableStream,
    Device,
    DeviceBuffer,
    DevicePtr,
    HostBuffer,
    HostPtr,
)
from headrace.engines.base import Binding, Engine, Layout
from headrace.engines.layout import plan_layout

Array = NDArray[Any]

NUMPY = {"FP32": np.float32, "FP16": np.float16, "INT64": np.int64, "INT32": np.int32}


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """One batch on its way: a block, a lane's memory, and a binding between them."""

    layout: Layout
    block: HostBuffer
    memory: DeviceBuffer
    binding: Binding


class Trial:
    """A context on a stream of its own; a batch is enqueued, and read when the stream is idle."""

    def __init__(self, engine: Engine, device: Device) -> None:
        self._engine = engine
        self._device = device
        self._opened = ExitStack()
        self.stream = device.open_stream()
        self._opened.callback(self.stream.close)
        self.context = engine.open_context(self.stream)
        self._opened.callback(self.context.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.stream.synchronize()
        self._opened.close()

    def bind(self, x: Array) -> Work:
        """Take a block and a lane's memory for the engine's one input, and bind them."""
        shapes = self._engine.output_shapes([x.shape])
        assert shapes is not None
        dtypes = [NUMPY[spec.datatype] for spec in self._engine.signature.outputs]
        sizes = [
            int(np.prod(shape)) * np.dtype(dtype).itemsize
            for shape, dtype in zip(shapes, dtypes, strict=True)
        ]
        layout = plan_layout([x.shape], [x.nbytes], shapes, sizes)
        block = self._device.alloc_host(layout.size_bytes)
        memory = self._device.alloc_device(layout.size_bytes)
        self._opened.callback(block.close)
        self._opened.callback(memory.close)
        start = layout.input_offsets[0]
        block.view[start : start + x.nbytes] = x.tobytes()
        binding = self.context.bind(
            layout,
            [memory.ptr + start],
            [memory.ptr + offset for offset in layout.output_offsets],
        )
        return Work(layout, block, memory, binding)

    def enqueue(self, work: Work) -> None:
        """Enqueue the copies and the computation, and wait for nothing."""
        self.copy_in(work)
        self.context.enqueue(work.binding)
        self.copy_out(work)

    def copy_in(self, work: Work) -> None:
        """Enqueue the copy of the inputs."""
        self.stream.copy_h2d(work.memory.ptr, work.block.ptr, work.layout.inputs_end)

    def copy_out(self, work: Work) -> None:
        """Enqueue the copy of the outputs."""
        start = work.layout.outputs_start
        size = work.layout.size_bytes - start
        block, memory = HostPtr(work.block.ptr + start), DevicePtr(work.memory.ptr + start)
        self.stream.copy_d2h(block, memory, size)

    def output(self, work: Work) -> Array:
        """Read the first output; the stream must be idle."""
        assert work.layout.output_shapes is not None
        dtype = NUMPY[self._engine.signature.outputs[0].datatype]
        at, size = work.layout.output_offsets[0], work.layout.output_sizes[0]
        raw = bytes(work.block.view[at : at + size])
        return np.frombuffer(raw, dtype).reshape(work.layout.output_shapes[0])


def run_side_by_side(
    engine: Engine, device: Device, batches: Sequence[Array], *, num_contexts: int
) -> list[Array]:
    """Enqueue all batches in turn over contexts of one engine before any is waited for."""
    with ExitStack() as opened:
        trials = [opened.enter_context(Trial(engine, device)) for _ in range(num_contexts)]
        works = []
        for index, x in enumerate(batches):
            trial = trials[index % num_contexts]
            works.append((trial, trial.bind(x)))
        for trial, work in works:
            trial.enqueue(work)
        for trial in trials:
            trial.stream.synchronize()
        return [trial.output(work) for trial, work in works]


def run_captured(engine: Engine, device: Device, batches: Sequence[Array]) -> list[Array]:
    """Capture the computation of the first batch, and replay it for each: all have its shape."""
    with Trial(engine, device) as trial:
        stream = trial.stream
        assert isinstance(stream, CapturableStream)
        work = trial.bind(batches[0])
        trial.enqueue(work)  # what the first run sets up cannot be captured
        stream.synchronize()
        graph = stream.capture(lambda: trial.context.enqueue(work.binding))
        found = []
        try:
            for x in batches:
                start = work.layout.input_offsets[0]
                work.block.view[start : start + x.nbytes] = x.tobytes()
                trial.copy_in(work)
                graph.launch()
                trial.copy_out(work)
                stream.synchronize()
                found.append(trial.output(work))
        finally:
            graph.close()
        return found
