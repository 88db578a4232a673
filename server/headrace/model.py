"""A served model: one version with its engine, its slots and its line; and how it is loaded."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

from headrace.engines.base import Engine, Layout, Shape, ShapedByValues
from headrace.engines.kinds import Kinds
from headrace.engines.layout import num_elements, pad_layout
from headrace.engines.model_spec import ModelSpec
from headrace.response_cache.store import ModelCache
from headrace.scheduling.line import Line
from headrace.slots.footprint import Footprint
from headrace.slots.graphs import GraphTally
from headrace_proto.datatypes import DATATYPES
from headrace_proto.v1 import model_config_pb2 as config_pb

log = logging.getLogger(__name__)

MAX_LAYOUTS = 512  # shapes kept ready a model
Call = tuple[tuple[Shape, ...], tuple[int, ...], tuple[bytes, ...]]  # shapes, sizes, values
EMPTY_ELEMENT_BYTES = 4  # a BYTES element of no bytes is its length alone


class ServedModel:
    """One version of one model, ready to take requests."""

    def __init__(
        self,
        spec: ModelSpec,
        config: config_pb.ModelConfig,
        engine: Engine,
        line: Line,
        *,
        kinds: Kinds | None = None,
        warm: Sequence[Layout] = (),
        least_rows: Mapping[Layout, int] | None = None,
        footprint: Footprint | None = None,
        graphs: GraphTally | None = None,
        taken_bytes: int = 0,
        cache: ModelCache | None = None,
    ) -> None:
        """Put the parts together.

        Args:
            spec: With its inputs in the engine's order (`in_engine_order`).
            config: As completed; what ModelConfig answers.
            engine: Closed by `close`.
            line: With the slots, closed by `close`.
            kinds: The engine's, which laid `warm` out; none lets every request run alone.
            warm: Layouts that ran at load; bindings and graphs are kept by these objects.
            least_rows: Of those that fewer rows, down to so many, are padded to; 0 for none.
            footprint: The memory it takes, on a device with memory of its own.
            graphs: What its CUDA graphs did, where they are on.
            taken_bytes: How much less of such a device's memory was free after it was loaded.
            cache: Its replies, where they are kept; closed by `close`.
        """
        self.spec = spec
        self.config = config
        self.line = line
        self.footprint = footprint
        self.graphs = graphs
        self.taken_bytes = taken_bytes
        self.cache = cache
        self._engine = engine
        self._kinds = kinds or Kinds(engine)
        self._kinds.settle(warm, least_rows or {})
        self._warm = {(each.input_shapes, each.input_sizes, each.values): each for each in warm}
        rows = (least_rows or {}).items()
        self._padded_to = sorted(  # the smallest first: the least padding
            ((layout, least) for layout, least in rows if least),
            key=lambda each: each[0].size_bytes,
        )
        self._layouts: dict[Call, Layout] = {}

    @property
    def is_ready(self) -> bool:
        """Whether any slot takes work."""
        return self.line.pool.is_ready

    @property
    def why_unready(self) -> str:
        """Why it is not ready, for people; empty while it is."""
        return "" if self.is_ready else "its slots have failed"

    def plan(
        self, shapes: Sequence[Shape], sizes: Sequence[int], values: Sequence[bytes] = ()
    ) -> Layout:
        """Return the layout of a call; see `Served.plan`."""
        key = (tuple(shapes), tuple(sizes), tuple(values))
        layout = self._layouts.get(key)
        if layout is None:
            inner = engine_shapes(self._engine, self.spec, shapes)
            if self.spec.sequence is not None:
                sizes = self.spec.sequence.sizes(inner, sizes)
            layout = self._warm.get((inner, tuple(sizes), key[2]))
            if layout is None:
                layout = self._padded(self._kinds.lay_out(inner, sizes, values))
            if len(self._layouts) >= MAX_LAYOUTS:
                del self._layouts[next(iter(self._layouts))]
            self._layouts[key] = layout
        return layout

    def _padded(self, layout: Layout) -> Layout:
        """Let a call run as one of more rows, for which there is a graph.

        One that has a kind is padded in its batch.
        """
        if layout.kind is not None:
            return layout
        for target, least_rows in self._padded_to:
            padded = pad_layout(layout, target)
            if padded is not None and padded.input_shapes[0][0] >= least_rows:
                return padded
        return layout

    def close(self) -> None:
        """Forget its replies, close the slots, then the engine. A second call does nothing."""
        if self.cache is not None:
            self.cache.close()
        try:
            self.line.pool.close()
        finally:
            self._engine.close()


def engine_shapes(engine: Engine, spec: ModelSpec, shapes: Sequence[Shape]) -> tuple[Shape, ...]:
    """Return the engine's shapes, those of hidden inputs too, for those of a client's call.

    Raises:
        RequestError: No optimization profile takes these shapes.
    """
    maps = zip(spec.input_maps, shapes, strict=True)
    inner = tuple(tensor_map.to_engine(tuple(shape)) for tensor_map, shape in maps)
    if spec.sequence is not None:
        inner = spec.sequence.shapes(inner)
    engine.check_inputs(inner)
    return inner


def in_engine_order(spec: ModelSpec) -> ModelSpec:
    """Return the spec with its inputs in the engine's order, as blocks and bindings want them."""
    order = sorted(range(len(spec.inputs)), key=lambda place: spec.input_maps[place].index)
    return replace(
        spec,
        inputs=tuple(spec.inputs[place] for place in order),
        input_maps=tuple(spec.input_maps[place] for place in order),
    )


def trial_layouts(
    engine: Engine, kinds: Kinds, shapes: Sequence[tuple[Shape, ...]] = ()
) -> list[Layout]:
    """Lay out calls of zeros to warm up with, those of other shapes too; BYTES elements are empty.

    Args:
        engine: Says itself what it wants to be warmed up with.
        kinds: The model's, which lays them out.
        shapes: More sets of shapes of all inputs, the engine's.
    """
    own = list(engine.trial_shapes())
    values = list(engine.trial_values()) if isinstance(engine, ShapedByValues) else [()] * len(own)
    calls = dict.fromkeys((*zip(own, values, strict=True), *((each, ()) for each in shapes)))
    return [kinds.lay_out(each, sizes_of_zeros(engine, each), given) for each, given in calls]


def sizes_of_zeros(engine: Engine, shapes: Sequence[Shape]) -> tuple[int, ...]:
    """Return the bytes of all inputs of these shapes, BYTES elements being empty."""
    return tuple(
        num_elements(shape) * (DATATYPES[spec.datatype].itemsize_bytes or EMPTY_ELEMENT_BYTES)
        for spec, shape in zip(engine.signature.inputs, shapes, strict=True)
    )
