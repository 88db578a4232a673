"""Opens the slots of a model and warms them up: the first request finds everything ready."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from headrace.device.base import Device, Stream
from headrace.device.host import HostDevice
from headrace.engines.base import Engine, Layout
from headrace.engines.batching_spec import BatchingSpec
from headrace.engines.kinds import Kinds
from headrace.engines.model_spec import ModelSpec
from headrace.errors import DeviceError, EngineError
from headrace.slots.blocks import BlockPool, size_class
from headrace.slots.capacity import Capacity
from headrace.slots.footprint import Footprint
from headrace.slots.graphs import GraphTally
from headrace.slots.lane import Lane
from headrace.slots.pool import SlotPool
from headrace.slots.slot import NUM_LANES, Slot
from headrace.slots.warmup import capture_graphs, warm_up
from headrace.trials import Trials, has_free_inputs, has_strings, plan_trials, shape_tensors
from headrace.warm_batches import WarmBatches, batching_of
from headrace_proto.v1 import model_config_pb2 as config_pb

log = logging.getLogger(__name__)

GPU_SLOTS = 2  # where nothing says otherwise: one computes while the other copies
NUM_TRIALS = 20  # the least of so many runs is what the model takes
LEAST_HAND_OVER_S = 50e-6
"""In a busy server both threads want the interpreter lock; an idle measurement does not show it."""
LONG_RUN_S = 0.005  # longer than any hand-over: no need to measure more often
LONGEST_INLINE_S = 1e-3
"""The front door receives nothing while a batch runs inline, so even the largest must be short. 32
rows of a small MLP take 0.14 ms; above a millisecond, most of a core's work would be the model's,
and a thread of its own takes it off the front door."""
RESERVED_BYTES = 128 << 20
"""Pinned ahead for one model's batches at most: it takes a millisecond a megabyte."""

USUAL_LOAD_S = 20.0
"""Slots that are opened later than that capture in use what nobody asked for."""


@dataclass(frozen=True, slots=True)
class Opened:
    """The slots of one model, warm.

    Attributes:
        pool: All of them.
        layouts: What they were warmed up with.
        kinds: What laid these out, and will lay out requests and batches.
        least_rows: Of layouts that fewer rows, down to so many, are padded to.
        capacity: What batches take, as measured; nothing for models that do not batch.
        batching: The policy of the queue: the configuration's, but for batches that nobody asked
            for and that would not serve more rows per second than smaller ones.
        footprint: Their memory; None where the device has none of its own.
        graphs: None where CUDA graphs are off.
    """

    pool: SlotPool
    layouts: Sequence[Layout]
    kinds: Kinds
    capacity: Capacity
    batching: BatchingSpec | None
    footprint: Footprint | None = None
    graphs: GraphTally | None = None
    least_rows: Mapping[Layout, int] = field(default_factory=dict)


class SlotOpener:
    """Opens slots on one device.

    Args:
        device: Theirs.
        blocks: Its staging blocks; some are allocated ahead for each model.
        clock: Seconds, for all slots.
        default_num_slots: Where a configuration names no number; 0 to choose by device.
    """

    def __init__(
        self,
        device: Device,
        blocks: BlockPool,
        *,
        clock: Callable[[], float],
        default_num_slots: int = 0,
    ) -> None:
        self._device = device
        self._blocks = blocks
        self._clock = clock
        self._default_num_slots = default_num_slots

    @property
    def num_slots(self) -> int:
        """How many slots a model gets whose configuration names no number."""
        if self._default_num_slots:
            return self._default_num_slots
        return GPU_SLOTS if self._device.kind == "cudart" else len(os.sched_getaffinity(0))

    def open(
        self,
        engine: Engine,
        spec: ModelSpec,
        config: config_pb.ModelConfig,
        *,
        is_batching_asked: bool = True,
    ) -> Opened:
        """Open the slots and run each, so that the first request finds them warm.

        A model on the CPU that runs shorter than a hand-over to a thread gets one slot that runs it
        on the stepping thread instead: there the hand-over would cost more than the model. Not one
        of strings, or of inputs of any size: a large request would keep all others waiting.

        Args:
            engine: Closed by the caller.
            spec: With its inputs in the engine's order.
            config: Completed.
            is_batching_asked: The operator wrote `dynamic_batching`; else it was filled in.

        Raises:
            HeadraceError: It cannot be served; nothing stays open.
        """
        trials = plan_trials(engine, spec, config, self._device, self._blocks)
        batches = WarmBatches(
            *(spec.name, trials.batches, self._blocks),
            clock=self._clock,
            is_optional=self._device.is_unified and not is_batching_asked,
        )
        is_bounded = not (has_strings(engine) or has_free_inputs(spec))
        if isinstance(self._device, HostDevice) and is_bounded:
            inline = self._open_inline(
                self._device, engine, spec, trials, batches, is_asked=is_batching_asked
            )
            if inline is not None:
                return inline
        before_bytes = self._blocks.allocated_bytes
        slots, capacity = self._open_warm(engine, spec, trials, batches)
        self._reserve(trials, len(slots))
        trials.kinds.settle(trials.all, trials.least_rows)
        pool = SlotPool(slots)
        blocks_bytes = max(self._blocks.allocated_bytes - before_bytes, 0)
        footprint = Footprint(pool, engine.weights_bytes, blocks_bytes)
        return Opened(
            pool,
            trials.all,
            trials.kinds,
            capacity,
            batching_of(spec, capacity, is_asked=is_batching_asked),
            None if self._device.is_unified else footprint,
            trials.tally,
            trials.least_rows,
        )

    def _open_warm(
        self, engine: Engine, spec: ModelSpec, trials: Trials, batches: WarmBatches
    ) -> tuple[list[Slot], Capacity]:
        """Open the slots and run on each what it shall be warm for."""
        slots: list[Slot] = []
        began_at = self._clock()
        try:
            for index in range(spec.num_slots or self.num_slots):
                slots.append(self._open_slot(index, engine, self._device.open_stream()))
                if not self._device.is_unified:
                    batches.hold(slots[-1])
                is_late = self._clock() - began_at > USUAL_LOAD_S
                self._warm_up(slots[-1], trials, spec, has_usual=not is_late)
            capacity = batches.measure(slots)
        except BaseException:
            SlotPool(slots).close()
            raise
        if trials.tally is not None:
            trials.tally.restart()
        return slots, capacity

    def _open_inline(
        self,
        device: HostDevice,
        engine: Engine,
        spec: ModelSpec,
        trials: Trials,
        batches: WarmBatches,
        *,
        is_asked: bool,
    ) -> Opened | None:
        """Open the one slot of a model that is shorter than a hand-over, its largest batch too."""
        slot = self._open_slot(0, engine, device.open_inline_stream(), is_inline=True)
        with ExitStack() as undo:
            undo.callback(slot.close)
            if not self._is_short(device, slot, trials.layouts[0], spec):
                return None
            capacity = batches.measure([slot])
            batching = batching_of(spec, capacity, is_asked=is_asked)
            rows = 1 if batching is None else batching.max_rows
            if capacity.mean_s(rows) >= LONGEST_INLINE_S:
                log.info(
                    "%s takes %.1f ms for %d rows: too long to run inline",
                    spec.name,
                    capacity.mean_s(rows) * 1e3,
                    rows,
                )
                return None
            undo.pop_all()
        return Opened(SlotPool([slot]), trials.all, trials.kinds, capacity, batching)

    def _reserve(self, trials: Trials, num_slots: int) -> None:
        """Have blocks ahead for what may be in flight and as much again, and no more."""
        if self._device.is_unified:
            return  # no need: only pinning is slow
        num_lanes = num_slots * NUM_LANES
        for layout in trials.usual:
            self._blocks.trim(layout.size_bytes, 0)
        for layout in trials.asked:
            self._blocks.reserve(layout.size_bytes, 2 * num_lanes)
        if trials.batches:
            size_bytes = trials.batches[1].size_bytes
            most = max(RESERVED_BYTES // size_class(size_bytes), 2 * num_lanes)
            self._blocks.reserve(size_bytes, min(2 * num_lanes * max(trials.batches), most))
            self._blocks.trim(size_bytes, most)  # the batches of warm-up may have taken more

    def _open_slot(
        self, index: int, engine: Engine, stream: Stream, *, is_inline: bool = False
    ) -> Slot:
        with ExitStack() as undo:
            undo.callback(stream.close)
            context = engine.open_context(stream)
            undo.callback(context.close)
            slot = Slot(
                index,
                self._device,
                stream,
                context,
                clock=self._clock,
                num_lanes=1 if is_inline else NUM_LANES,
                has_marks=self._device.kind == "cudart",
                is_inline=is_inline,
                host_inputs=shape_tensors(engine),
            )
            undo.pop_all()
        return slot

    def _warm_up(self, slot: Slot, trials: Trials, spec: ModelSpec, *, has_usual: bool) -> None:
        lanes = slot.lanes[:1] if self._device.is_unified else slot.lanes
        layouts = trials.layouts if has_usual else trials.asked
        for layout in sorted(layouts, key=lambda each: -each.size_bytes):  # so no memory moves
            may_fail = layout in trials.usual
            for lane in lanes:
                if self._try(slot, layout, spec, lane, may_fail=may_fail) == math.inf and may_fail:
                    trials.give_up(layout)
                    break
        if trials.tally is None:
            return
        slot.use_graphs(trials.tally)
        try:
            num_graphs = capture_graphs(slot, layouts, self._blocks)
        except EngineError as error:
            log.info("%s: no CUDA graph was captured on zeros: %s", spec.name, error)
        else:
            log.info("%s: slot %d has %d CUDA graphs", spec.name, slot.index, num_graphs)

    def _is_short(self, device: HostDevice, slot: Slot, layout: Layout, spec: ModelSpec) -> bool:
        best_s = min(self._try(slot, layout, spec) for _ in range(2))
        for _ in range(NUM_TRIALS if best_s < LONG_RUN_S else 0):
            best_s = min(best_s, self._try(slot, layout, spec))
        hand_over_s = max(device.hand_over_s(), LEAST_HAND_OVER_S)
        log.info(
            "%s takes %.0f us, a hand-over %.0f us", spec.name, best_s * 1e6, hand_over_s * 1e6
        )
        return best_s < hand_over_s

    def _try(
        self,
        slot: Slot,
        layout: Layout,
        spec: ModelSpec,
        lane: Lane | None = None,
        *,
        may_fail: bool = False,
    ) -> float:
        """Return how long zeros took; for ever, when the model refuses zeros.

        Args:
            slot: The lane's.
            layout: Of the zeros.
            spec: Whose model it is.
            lane: The first when none is named.
            may_fail: The device may lack the memory, too.
        """
        try:
            return warm_up(slot, layout, self._blocks, lane=lane)
        except (EngineError, DeviceError) as error:
            if isinstance(error, DeviceError) and (error.sticky or not may_fail):
                raise
            log.info("%s refuses a warm-up run on zeros: %s", spec.name, error)
            return math.inf
