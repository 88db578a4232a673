"""Ensembles on the virtual device: real catalog, lines, slots and scheduler, which a test steps.

Every model mixes: each output is the sum of all inputs, times its own number, plus 1, modulo 256.
Like the engine of `core_rig` it works on the device's memory when its turn comes, so that memory
which was reused too early shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from headrace.catalog import ModelCatalog
from headrace.device.base import Stream
from headrace.device.sim import SimDevice
from headrace.engines.base import Binding, Layout, Shape, Signature
from headrace.engines.batching_spec import BatchingSpec
from headrace.engines.kinds import Kinds
from headrace.engines.model_config import complete, model_spec
from headrace.engines.model_folder import FolderReader, ModelSource
from headrace.ensemble import ServedEnsemble, open_ensemble
from headrace.errors import ConfigError
from headrace.link.local import LocalLink
from headrace.metrics import Metrics
from headrace.model import ServedModel, in_engine_order
from headrace.scheduling.admission import Admission
from headrace.scheduling.batcher import SingleBatcher
from headrace.scheduling.dynamic import DynamicBatcher
from headrace.scheduling.line import Line
from headrace.scheduling.ordering import Ordering
from headrace.scheduling.request import Request
from headrace.scheduling.scheduler import Scheduler
from headrace.slots.batch import Output
from headrace.slots.blocks import Block, BlockPool
from headrace.slots.capacity import Capacity
from headrace.slots.poller import Poller
from headrace.slots.pool import SlotPool
from headrace.slots.slot import Slot
from helpers.model_repository import config_of, signature_of

Bytes = NDArray[np.uint8]
ONNX = 'platform: "onnxruntime_onnx" backend: "onnxruntime"'


def mixed(inputs: Sequence[Bytes], number: int) -> Bytes:
    """What output `number` of a model is, the first being 1."""
    total = np.zeros_like(inputs[0])
    for each in inputs:
        total = total + each
    return total * np.uint8(number) + np.uint8(1)


class Mix:
    """An engine with so many inputs `x0`, `x1` … and outputs `y0`, `y1` …, all of one shape."""

    platform = "sim"
    is_blocking = False
    weights_bytes = 0
    profile_rows: tuple[int, ...] = ()

    def __init__(self, device: SimDevice, num_inputs: int, num_outputs: int) -> None:
        self.device = device
        self.signature: Signature = signature_of(
            " ".join(f"x{index} UINT8[?,?]" for index in range(num_inputs)),
            " ".join(f"y{index} UINT8[?,?]" for index in range(num_outputs)),
        )
        self.num_open_contexts = 0

    def use_profiles(self, wanted: Sequence[int]) -> None:
        """There are none."""

    def trial_shapes(self) -> Sequence[tuple[Shape, ...]]:
        """Never warmed up."""
        return ()

    def check_inputs(self, shapes: Sequence[Shape]) -> None:
        """Take every shape."""

    def output_shapes(self, shapes: Sequence[Shape]) -> tuple[Shape, ...]:
        """Return the first input's for all outputs."""
        return (shapes[0],) * len(self.signature.outputs)

    def open_context(self, stream: Stream) -> MixContext:
        """Open a context."""
        self.num_open_contexts += 1
        return MixContext(self)

    def close(self) -> None:
        """Hold that every context is closed."""
        assert self.num_open_contexts == 0


class MixContext:
    """A context of it."""

    def __init__(self, engine: Mix) -> None:
        self.engine = engine
        self.is_open = True

    def bind(
        self, layout: Layout, input_ptrs: Sequence[int], output_ptrs: Sequence[int]
    ) -> Binding:
        """Keep the addresses."""
        return Binding(layout, tuple(input_ptrs), tuple(output_ptrs))

    def enqueue(self, binding: Binding) -> None:
        """Compute on the device's memory as it is now."""
        bytes_at, sizes = self.engine.device.bytes_at, binding.layout.input_sizes
        pairs = zip(binding.input_ptrs, sizes, strict=True)
        inputs = [bytes_at(ptr, size).copy() for ptr, size in pairs]
        for number, ptr in enumerate(binding.output_ptrs, start=1):
            bytes_at(ptr, sizes[0])[:] = mixed(inputs, number)

    def close(self) -> None:
        """Close; a second call does nothing."""
        if self.is_open:
            self.is_open = False
            self.engine.num_open_contexts -= 1


class Shredder(BlockPool):
    """Blocks whose bytes are wrong as soon as they have gone back."""

    def release(self, block: Block) -> None:
        """Take a block back, and let nobody read in it any more."""
        super().release(block)
        block.view[:] = b"\xee" * block.size_bytes


@dataclass(eq=False)
class Asked:
    """A request that a test made, and how it ended."""

    inputs: Sequence[Bytes]
    request: Request
    answers: list[list[Bytes]] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)

    @property
    def num_ends(self) -> int:
        """How often it ended; 1 is right."""
        return len(self.answers) + len(self.errors)


class EnsembleRig:
    """Models and ensembles on a virtual device, and a scheduler that is stepped by hand."""

    def __init__(
        self,
        *,
        budget_bytes: int = 1 << 20,
        max_waiting_bytes: int = 1 << 20,
        is_unified: bool = False,
        max_queue_size: int = 64,
    ) -> None:
        self.device = SimDevice(is_unified=is_unified, copy_bytes_per_s=1e9, launch_s=0.001)
        self.blocks = Shredder(self.device, budget_bytes)
        self.admission = Admission(self.blocks, max_waiting_bytes=max_waiting_bytes)
        self.scheduler = Scheduler(self.blocks, Poller(), self.admission, clock=self.clock)
        self.link = LocalLink(self.scheduler)
        self.catalog = ModelCatalog()
        self.metrics = Metrics()
        self.max_queue_size = max_queue_size
        self.asked: list[Asked] = []
        self.opened: list[ServedModel] = []  # all that ever were, to be closed at the end

    def clock(self) -> float:
        """Return the device's virtual time, in seconds."""
        return self.device.now

    def model(
        self,
        name: str,
        num_inputs: int = 1,
        num_outputs: int = 1,
        *,
        version: int = 1,
        num_slots: int = 1,
        max_batch_size: int = 8,
        batching: BatchingSpec | None = None,
        max_queue_size: int = 64,
        width: int = -1,
    ) -> ServedModel:
        """Make a model; it is not served yet."""
        engine = Mix(self.device, num_inputs, num_outputs)
        dims = [width] if max_batch_size else [-1, width]
        tensors = "".join(
            f'{side} {{ name: "{spec.name}" data_type: TYPE_UINT8 dims: {dims} }}'
            for side, specs in (
                ("input", engine.signature.inputs),
                ("output", engine.signature.outputs),
            )
            for spec in specs
        )
        text = f'name: "{name}" {ONNX} max_batch_size: {max_batch_size} {tensors}'
        config = complete(config_of(text), engine.signature, auto_complete=True)
        spec = in_engine_order(model_spec(config, engine.signature, version))
        pool = SlotPool([self._slot(index, engine) for index in range(num_slots)])
        metrics = self.metrics.model(name, str(version))
        line = self._line(name, pool, batching, max_queue_size)
        line.metrics = metrics
        kinds = Kinds(engine, 1 if batching is None else batching.max_rows)
        served = ServedModel(spec, config, engine, line, kinds=kinds)
        self.opened.append(served)
        return served

    def add(self, *models: ServedModel) -> None:
        """Serve models."""
        for each in models:
            self.scheduler.add_line(each.line)
            self.catalog.add(each)

    def ensemble(
        self, text: str, *, name: str = "e", version: int = 1, max_queue_size: int | None = None
    ) -> ServedEnsemble:
        """Serve an ensemble of this configuration; raises what is wrong with it."""
        served = open_ensemble(
            source_of(name, text, version),
            version,
            self.catalog,
            self.metrics,
            max_queue_size=self.max_queue_size if max_queue_size is None else max_queue_size,
        )
        self.add(served)
        return served

    def submit(
        self, name: str, *inputs: Bytes, deadline: float | None = None, priority: int = 0
    ) -> Asked:
        """Submit a request; raises what refuses it."""
        served = self.catalog.find(name, "")
        asked: Asked

        def on_end(_: Request, outputs: Sequence[Output] | None, error: Exception | None) -> None:
            if error is not None:
                asked.errors.append(error)
                return
            assert outputs is not None
            answer = [
                np.frombuffer(bytes(outputs[tensor_map.index][1]), np.uint8).reshape(
                    tensor_map.to_client(outputs[tensor_map.index][0])
                )
                for tensor_map in served.spec.output_maps
            ]
            asked.answers.append(answer)

        shapes = [each.shape for each in inputs]
        request = Request(
            served.line,
            served.plan(shapes, [each.nbytes for each in inputs]),
            [each.tobytes() for each in inputs],
            rows=shapes[0][0] if served.spec.max_batch_size else 1,
            deadline=deadline,
            received_at=self.clock(),
            parsed_at=self.clock(),
            on_end=on_end,
            priority=priority,
        )
        asked = Asked(inputs, request)
        self.asked.append(asked)
        try:
            self.link.submit(request, self.clock())
        except Exception:
            self.asked.remove(asked)
            raise
        return asked

    def step(self) -> bool:
        """Step the core at the virtual time that it is."""
        return self.link.step(self.clock())

    def run(self) -> None:
        """Let device and core work until nothing is left to do."""
        for _ in range(20_000):
            if self.step():
                continue
            if self.device.step():
                continue
            if self.scheduler.is_idle:
                return
            self.device.run_until(self.clock() + 0.01)
        raise AssertionError("the core does not come to rest")

    def close(self) -> None:
        """Close in the order of the application, and hold that nothing stays open or held."""
        assert self.scheduler.ensembles.held_bytes == 0
        assert not self.scheduler.ensembles.news
        assert self.blocks.num_leased == 0
        assert all(asked.num_ends == 1 for asked in self.asked)
        self.link.close()
        for each in self.opened:
            each.close()
        self.blocks.close()
        assert self.device.leaks() == []
        self.device.close()

    def _slot(self, index: int, engine: Mix) -> Slot:
        stream = self.device.open_stream()
        return Slot(index, self.device, stream, engine.open_context(stream), clock=self.clock)

    def _line(
        self, name: str, pool: SlotPool, spec: BatchingSpec | None, max_queue_size: int
    ) -> Line:
        metrics = self.metrics.model(name, "1")
        if spec is None:
            return Line(name, SingleBatcher(pool.least_s), pool, metrics, max_queue_size)
        capacity = Capacity()
        batcher = DynamicBatcher(
            *(spec, capacity, pool.starts_at, max_queue_size),
            num_busy=pool.num_busy,
            num_idle=pool.num_idle,
            ends_at=pool.ends_at,
        )
        ordering = Ordering() if spec.preserve_ordering else None
        return Line(
            *(name, batcher, pool, metrics, spec.queue_size(max_queue_size)),
            capacity=capacity,
            ordering=ordering,
        )


def source_of(name: str, text: str, version: int = 1) -> ModelSource:
    """Return an ensemble's source; raises the first thing that is wrong with it by itself."""
    faults: list[ConfigError] = []
    reader = FolderReader(faults, [])
    config = config_of(text)
    source = reader._ensemble(Path(name), Path(), config, {version: Path(name)}, None)
    if faults:
        raise faults[0]
    return source


def step_text(model: str, inputs: dict[str, str], outputs: dict[str, str], more: str = "") -> str:
    """Write one step."""
    maps = "".join(
        f'{side} {{ key: "{key}" value: "{value}" }} '
        for side, names in (("input_map", inputs), ("output_map", outputs))
        for key, value in names.items()
    )
    return f'step {{ model_name: "{model}" model_version: -1 {maps} {more} }}\n'


def ensemble_text(
    inputs: Sequence[str],
    outputs: Sequence[str],
    steps: Sequence[str],
    *,
    max_batch_size: int = 8,
    more: str = "",
) -> str:
    """Write the configuration of an ensemble of UINT8 tensors."""
    dims = "[ -1 ]" if max_batch_size else "[ -1, -1 ]"
    tensors = "".join(
        f'{side} {{ name: "{name}" data_type: TYPE_UINT8 dims: {dims} }}\n'
        for side, names in (("input", inputs), ("output", outputs))
        for name in names
    )
    return (
        f'platform: "ensemble" max_batch_size: {max_batch_size}\n{tensors}'
        f"ensemble_scheduling {{\n{''.join(steps)}}}\n{more}"
    )
