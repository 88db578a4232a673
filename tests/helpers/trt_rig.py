"""A GPU and a TensorRT for tests on a CPU: virtual device, fake, and a slot's worth of calls."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from numpy.typing import NDArray

from headrace.device.sim import SimDevice
from headrace.device.sim_memory import SimDeviceBuffer, SimHostBuffer
from headrace.device.sim_stream import SimStream
from headrace.engines.base import Binding, ExecutionContext, Layout, Shape
from headrace.engines.layout import plan_layout
from headrace.engines.trt import TrtEngine, TrtOptions, open_engine
from headrace.engines.trt_modules import MODULES
from headrace.engines.trt_tensors import size_bytes
from helpers.fake_plans import write_plan
from helpers.fake_tensorrt import World, make_module

Array = NDArray[Any]


class GpuSim(SimDevice):
    """The virtual device in the place of a GPU."""

    kind = "cudart"
    compute_capability = "8.6"


class Rig:
    """A machine with one GPU, and with the TensorRT that `install` puts there."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self._monkeypatch = monkeypatch
        self.renew()
        for names in MODULES.values():
            for name in names:  # whatever this machine has
                monkeypatch.setitem(sys.modules, name, None)

    def renew(self) -> None:
        """Take a new GPU, on which nothing happened yet; `install` again after it."""
        self.device = GpuSim()
        self.world = World(self.device)

    def install(self, name: str = "tensorrt", version: str = "11.4.0.106", **more: Any) -> None:
        """Make a module importable; see `make_module`."""
        module = make_module(self.world, name, version, **more)
        self._monkeypatch.setitem(sys.modules, name, module)

    def open(
        self,
        plan: dict[str, Any],
        *,
        kind: Literal["ftrt", "vtrt"] = "ftrt",
        options: TrtOptions | None = None,
    ) -> TrtEngine:
        """Write a plan and open it."""
        return open_engine(write_plan(self.folder, plan, kind), self.device, options=options)


@dataclass
class Lane:
    """What a slot keeps for one batch: a block, device memory and a binding between them."""

    layout: Layout
    block: SimHostBuffer
    memory: SimDeviceBuffer
    binding: Binding
    output_dtype: str

    def outputs(self) -> list[Array]:
        """Read the outputs from the block."""
        assert self.layout.output_shapes is not None
        raw = np.frombuffer(self.block.view, np.uint8)
        places = zip(
            self.layout.output_shapes,
            self.layout.output_offsets,
            self.layout.output_sizes,
            strict=True,
        )
        return [
            raw[at : at + size].view(self.output_dtype).reshape(shape) for shape, at, size in places
        ]


class RigSlot:
    """A stream, a context and as many lanes as a test asks for."""

    def __init__(self, rig: Rig, engine: TrtEngine) -> None:
        self.device = rig.device
        self.engine = engine
        self.stream: SimStream = self.device.open_stream()
        self.context: ExecutionContext = engine.open_context(self.stream)
        self.lanes: list[Lane] = []
        self.is_closed = False

    def lane(self, inputs: Sequence[Array], output_shapes: Sequence[Shape] | None = None) -> Lane:
        """Lay inputs out in a block; bind a lane's memory, for shape tensors the block itself."""
        signature = self.engine.signature
        shapes = [each.shape for each in inputs]
        if output_shapes is None:
            output_shapes = self.engine.output_shapes(shapes)
        assert output_shapes is not None
        sizes = [
            size_bytes(spec.datatype, shape)
            for spec, shape in zip(signature.outputs, output_shapes, strict=True)
        ]
        layout = plan_layout(shapes, [each.nbytes for each in inputs], output_shapes, sizes)
        block = self.device.alloc_host(layout.size_bytes)
        memory = self.device.alloc_device(layout.size_bytes)
        for each, at in zip(inputs, layout.input_offsets, strict=True):
            block.view[at : at + each.nbytes] = each.tobytes()
        bases = [block.ptr if each.is_shape_tensor else memory.ptr for each in signature.inputs]
        binding = self.context.bind(
            layout,
            [base + at for base, at in zip(bases, layout.input_offsets, strict=True)],
            [memory.ptr + at for at in layout.output_offsets],
        )
        self.lanes.append(Lane(layout, block, memory, binding, inputs[0].dtype.str))
        return self.lanes[-1]

    def enqueue(self, lane: Lane) -> None:
        """Enqueue copies and computation, as a slot does on a GPU."""
        layout, block, memory = lane.layout, lane.block, lane.memory
        self.stream.copy_h2d(memory.ptr, block.ptr, layout.inputs_end)
        self.context.enqueue(lane.binding)
        out_bytes = layout.size_bytes - layout.outputs_start
        start = layout.outputs_start
        self.stream.copy_d2h(block.ptr + start, memory.ptr + start, out_bytes)  # type: ignore[arg-type]

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """Run one batch to its end."""
        lane = self.lane(inputs)
        self.enqueue(lane)
        self.stream.synchronize()
        return lane.outputs()

    def close(self) -> None:
        """Close everything, as a slot does: wait, then context, lanes, stream."""
        if not self.is_closed:
            self.is_closed = True
            self.stream.synchronize()
        self.context.close()
        for lane in self.lanes:
            lane.memory.close()
            lane.block.close()
        self.stream.close()
