"""A served model: one version with its engine, its slots and its line; and how it is loaded."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from headrace.device.base import Device
from headrace.engines.base import Engine, Layout, Shape
from headrace.engines.layout import num_elements, plan_layout
from headrace.engines.model_spec import ModelSpec
from headrace.scheduling.line import Line
from headrace.slots.batch import Batch
from headrace.slots.blocks import Block, BlockPool
from headrace.slots.slot import Slot
from headrace_proto.datatypes import DATATYPES
from headrace_proto.v1 import model_config_pb2 as config_pb

log = logging.getLogger(__name__)

MAX_LAYOUTS = 512  # shapes kept ready a model
EMPTY_ELEMENT_BYTES = 4  # a BYTES element of no bytes is its length alone


class ServedModel:
    """One version of one model, ready to take requests."""

    def __init__(
        self, spec: ModelSpec, config: config_pb.ModelConfig, engine: Engine, line: Line
    ) -> None:
        """Put the parts together.

        Args:
            spec: With its inputs in the engine's order (`in_engine_order`).
            config: As completed; what ModelConfig answers.
            engine: Closed by `close`.
            line: With the slots, closed by `close`.
        """
        self.spec = spec
        self.config = config
        self.line = line
        self._engine = engine
        self._layouts: dict[tuple[tuple[Shape, ...], tuple[int, ...]], Layout] = {}

    @property
    def is_ready(self) -> bool:
        """Whether any slot takes work."""
        return self.line.pool.is_ready

    def plan(self, shapes: Sequence[Shape], sizes: Sequence[int]) -> Layout:
        """Return the layout of a call; see `Served.plan`."""
        key = (tuple(shapes), tuple(sizes))
        layout = self._layouts.get(key)
        if layout is None:
            layout = plan_call(self._engine, self.spec, shapes, sizes)
            if len(self._layouts) >= MAX_LAYOUTS:
                del self._layouts[next(iter(self._layouts))]
            self._layouts[key] = layout
        return layout

    def close(self) -> None:
        """Close the slots, then the engine. A second call does nothing."""
        try:
            self.line.pool.close()
        finally:
            self._engine.close()


def plan_call(
    engine: Engine, spec: ModelSpec, shapes: Sequence[Shape], sizes: Sequence[int]
) -> Layout:
    """Lay out a call: the client's shapes become the engine's, outputs get their places.

    Raises:
        RequestError: No optimization profile takes these shapes.
    """
    maps = zip(spec.input_maps, shapes, strict=True)
    inner = tuple(tensor_map.to_engine(tuple(shape)) for tensor_map, shape in maps)
    engine.check_inputs(inner)
    return lay_out(engine, inner, sizes)


def lay_out(engine: Engine, shapes: Sequence[Shape], sizes: Sequence[int]) -> Layout:
    """Lay out a call in the engine's own shapes; outputs get their places where they are known."""
    outputs = engine.signature.outputs
    output_shapes = engine.output_shapes(shapes)
    if output_shapes is None or any(output.datatype == "BYTES" for output in outputs):
        return plan_layout(shapes, sizes, None, ())
    output_sizes = [
        num_elements(shape) * DATATYPES[output.datatype].itemsize_bytes
        for output, shape in zip(outputs, output_shapes, strict=True)
    ]
    return plan_layout(shapes, sizes, output_shapes, output_sizes)


def in_engine_order(spec: ModelSpec) -> ModelSpec:
    """Return the spec with its inputs in the engine's order, as blocks and bindings want them."""
    order = sorted(range(len(spec.inputs)), key=lambda place: spec.input_maps[place].index)
    return replace(
        spec,
        inputs=tuple(spec.inputs[place] for place in order),
        input_maps=tuple(spec.input_maps[place] for place in order),
    )


@dataclass(slots=True, eq=False)
class _Trial:
    """A request of zeros, for warm-up."""

    layout: Layout
    block: Block | None
    rows: int = 1


def trial_layouts(engine: Engine) -> list[Layout]:
    """Lay out a call of zeros for every set of shapes to warm up with; BYTES elements are empty."""
    layouts = []
    for shapes in engine.trial_shapes():
        sizes = [
            num_elements(shape) * (DATATYPES[spec.datatype].itemsize_bytes or EMPTY_ELEMENT_BYTES)
            for spec, shape in zip(engine.signature.inputs, shapes, strict=True)
        ]
        layouts.append(lay_out(engine, shapes, sizes))
    return layouts


def warm_up(slot: Slot, layout: Layout, blocks: BlockPool) -> float:
    """Run zeros through a slot once and return how long the computation took, in seconds.

    Raises:
        EngineError: The engine refused them. A model may refuse zeros and yet serve real data.
        DeviceError: The device failed.
    """
    block = blocks.lease(layout.size_bytes)
    lane = slot.free_lane()
    if block is None or lane is None:
        raise AssertionError("warm-up runs before any request")
    block.view[: layout.inputs_end] = bytes(layout.inputs_end)
    try:
        slot.enqueue(lane, Batch((_Trial(layout, block),), layout, 1))
        slot.synchronize()
        slot.in_flight.popleft()
        if lane.error is not None:
            raise lane.error
        lane.event.is_done()
        slot.outputs(lane, 0)
        return lane.timing(0.0).execute_s
    finally:
        lane.free()
        blocks.release(block)


def reserve_blocks(blocks: BlockPool, layout: Layout, num_lanes: int, device: Device) -> None:
    """Allocate blocks ahead where it is slow: pinning takes about a millisecond a megabyte."""
    if not device.is_unified:
        blocks.reserve(layout.size_bytes, 2 * num_lanes)
