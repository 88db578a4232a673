"""What a model is warmed up with: its own trial shapes, and those of the CUDA graphs it gets."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from headrace.device.base import Device
from headrace.engines.base import CapturableEngine, Engine, Layout, Shape
from headrace.engines.batching_spec import usual_rows
from headrace.engines.graph_spec import (
    FIELD,
    WantedGraph,
    usual_graphs,
    wanted_graphs,
    wants_graphs,
)
from headrace.engines.kinds import Kinds
from headrace.engines.model_spec import ModelSpec
from headrace.errors import ConfigError, RequestError
from headrace.model import engine_shapes, sizes_of_zeros, trial_layouts
from headrace.slots.blocks import BlockPool
from headrace.slots.graphs import GraphTally
from headrace_proto.v1 import model_config_pb2 as config_pb

log = logging.getLogger(__name__)

USUAL_BYTES = 32 << 20
"""The largest layout of a graph that nobody asked for: each lane gets memory for it, and what the
engine needs beside grows with it."""


@dataclass(frozen=True, slots=True)
class Trials:
    """What runs before the first request does.

    Attributes:
        layouts: Of zeros.
        usual: Those of them that nobody asked for: they may be left out.
        kinds: What laid them out.
        graphs: What some of them are there for.
        tally: Counts the model's graphs; None when it has none.
        batches: By rows, the batch sizes to try, what matters most first; none without batching.
    """

    layouts: list[Layout]
    kinds: Kinds
    usual: set[Layout] = field(default_factory=set)
    graphs: dict[Layout, WantedGraph] = field(default_factory=dict)
    tally: GraphTally | None = None
    batches: dict[int, Layout] = field(default_factory=dict)

    @property
    def all(self) -> list[Layout]:
        """Every layout that ran: bindings and graphs are kept by these objects."""
        return list(dict.fromkeys((*self.layouts, *self.batches.values())))

    @property
    def asked(self) -> list[Layout]:
        """Those that the engine or the configuration asks for."""
        return [each for each in self.layouts if each not in self.usual]

    def give_up(self, layout: Layout) -> None:
        """Do without one that nobody asked for, on all slots."""
        self.layouts.remove(layout)
        self.usual.remove(layout)
        del self.graphs[layout]

    @property
    def least_rows(self) -> dict[Layout, int]:
        """How few rows are padded to a layout, 0 for none; asked when all have run.

        Padding costs the device time, so without graphs there is only what was asked for.
        """
        has_graphs = self.tally is not None and self.tally.num_captured > 0
        return {
            layout: each.least_rows
            for layout, each in self.graphs.items()
            if has_graphs or not each.is_usual
        }


def plan_trials(
    engine: Engine,
    spec: ModelSpec,
    config: config_pb.ModelConfig,
    device: Device,
    blocks: BlockPool,
) -> Trials:
    """Decide what to warm up a model with, and whether it has CUDA graphs.

    Args:
        engine: Its engine.
        spec: With its inputs in the engine's order.
        config: Completed.
        device: Where it runs.
        blocks: Where requests are staged.

    Raises:
        ConfigError: A `graph_spec` does not fit the model, or its requests the staging memory.
    """
    kinds = Kinds(engine, 1 if spec.batching is None else spec.batching.max_rows)
    tally = _graph_tally(engine, spec, config, device)
    wanted = _wanted_graphs(engine, spec, config) if tally else {}
    own = set(map(tuple, engine.trial_shapes()))
    usual = {shapes for shapes, each in wanted.items() if each.is_usual} - own
    layouts = [
        layout
        for layout in trial_layouts(engine, kinds, list(wanted))
        if layout.input_shapes not in usual or _is_small(layout, blocks)
    ]
    _refuse_what_never_fits(layouts, spec, blocks)
    return Trials(
        layouts,
        kinds,
        {layout for layout in layouts if layout.input_shapes in usual},
        {
            layout: wanted[layout.input_shapes]
            for layout in layouts
            if layout.input_shapes in wanted
        },
        tally,
        _batches(engine, spec, kinds, blocks) if layouts[0].kind is not None else {},
    )


def has_strings(engine: Engine) -> bool:
    """Say whether there are BYTES: each element takes its time, and zeros are few empty ones."""
    signature = engine.signature
    return any(each.datatype == "BYTES" for each in (*signature.inputs, *signature.outputs))


def has_free_inputs(spec: ModelSpec) -> bool:
    """Say whether an input has dimensions of any size: what a small one takes says nothing then."""
    first = 1 if spec.max_batch_size else 0
    return any(None in each.shape[first:] for each in spec.inputs)


def shape_tensors(engine: Engine) -> tuple[int, ...]:
    """Return the places of shape tensors among the inputs."""
    inputs = enumerate(engine.signature.inputs)
    return tuple(index for index, each in inputs if each.is_shape_tensor)


def _graph_tally(
    engine: Engine, spec: ModelSpec, config: config_pb.ModelConfig, device: Device
) -> GraphTally | None:
    """Return what counts a model's graphs; None when it has none, though they be switched on."""
    if not wants_graphs(config):
        return None
    if device.is_unified:
        why_not = f"the device is {device.kind}"
    elif not isinstance(engine, CapturableEngine) or not engine.is_capturable:
        why_not = f"what {spec.backend} enqueues cannot be captured from outside"
    elif shape_tensors(engine):
        why_not = "the values of its shape tensors are read at each enqueue"
    else:
        return GraphTally()
    log.warning("%s runs without CUDA graphs: %s", spec.name, why_not)
    return None


def _wanted_graphs(
    engine: Engine, spec: ModelSpec, config: config_pb.ModelConfig
) -> dict[tuple[Shape, ...], WantedGraph]:
    """Return, by the engine's shapes of all inputs, what graphs there shall be."""
    graphs = wanted_graphs(config, spec.inputs)
    if not graphs and isinstance(engine, CapturableEngine) and engine.pads_to_graphs:
        graphs = usual_graphs(config, spec.inputs)
    try:
        return {engine_shapes(engine, spec, each.shapes): each for each in graphs}
    except RequestError as error:
        raise ConfigError(str(error), field=FIELD) from error


def _batches(engine: Engine, spec: ModelSpec, kinds: Kinds, blocks: BlockPool) -> dict[int, Layout]:
    """Lay out the usual batch sizes, as many rows as there can be requests of one.

    None where dimensions are free and the engine has no optimum for them: what some shape takes
    says nothing about those that will come.
    """
    inputs = engine.signature.inputs
    is_fixed = bool(engine.profile_rows) or not any(None in each.shape[1:] for each in inputs)
    if spec.batching is None or spec.batching.max_rows < 2 or not is_fixed:
        return {}
    batches: dict[int, Layout] = {}
    for rows in usual_rows(spec.batching.max_rows, spec.batching.preferred_rows):
        shapes = [(rows, *shape[1:]) for shape in engine.trial_shapes()[0]]
        try:
            engine.check_inputs(shapes)
        except RequestError:
            continue  # of no profile
        batches[rows] = kinds.lay_out(shapes, sizes_of_zeros(engine, shapes))
    one = batches.get(1)
    if one is None:
        return {}
    fitting = {rows: each for rows, each in batches.items() if blocks.fits(one.size_bytes, rows)}
    if len(fitting) < len(batches):
        log.warning(
            "%s: batches of more than %d rows do not fit into the staging memory; raise "
            "--pinned-memory-pool-byte-size",
            spec.name,
            max(fitting),
        )
    return fitting


def _is_small(layout: Layout, blocks: BlockPool) -> bool:
    return layout.size_bytes <= USUAL_BYTES and blocks.fits(layout.size_bytes)


def _refuse_what_never_fits(layouts: list[Layout], spec: ModelSpec, blocks: BlockPool) -> None:
    for layout in layouts:
        if not blocks.fits(layout.size_bytes):
            raise ConfigError(
                f"a request to {spec.name} and its reply need {layout.size_bytes} bytes of "
                "staging memory, more than there is; raise --pinned-memory-pool-byte-size"
            )
