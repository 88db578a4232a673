"""A slot: one stream, one execution context and its lanes. It enqueues and never waits.

Rules
- The context is used on this slot's stream only, for life, and by one thread at a time.
- `enqueue` leaves the lane IN_FLIGHT with its event recorded, even when it fails half-way: copies
  may already be on the stream, so only the event may free the lane and the blocks.
- Work that a stream runs in order needs no host wait between copy, compute and copy.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import islice
from typing import Any

from headrace.device.base import CapturableStream, Device, DevicePtr, HostPtr, Stream
from headrace.engines.base import Binding, ExecutionContext, Layout
from headrace.errors import DeviceError
from headrace.slots.anchor import Anchor
from headrace.slots.batch import Batch, Output, Timing
from headrace.slots.blocks import Block, Parts
from headrace.slots.forecast import Forecast
from headrace.slots.gather import copy_in, copy_out, gather, parts_of, scatter
from headrace.slots.graphs import GraphTally, LaneGraphs, MissReason
from headrace.slots.lane import Lane
from headrace.slots.ranges import name_ranges
from headrace.slots.state import SLOT_STEPS, LaneState, SlotState

Clock = Callable[[], float]
NUM_LANES = 2  # double buffering: one computes, one is enqueued behind it
NUM_MARKS = 4


class Slot:
    """One stream's worth of concurrency for one model."""

    def __init__(
        self,
        index: int,
        device: Device,
        stream: Stream,
        context: ExecutionContext,
        *,
        clock: Clock,
        num_lanes: int = NUM_LANES,
        has_marks: bool = False,
        is_inline: bool = False,
        host_inputs: tuple[int, ...] = (),
    ) -> None:
        self.index = index
        self.context = context
        self.is_inline = is_inline  # the stream computes within `enqueue`: nothing to wait for
        self.state = SlotState.OPEN
        self.in_flight: deque[Lane] = deque()  # in stream order: the first is done first
        self.first_since = 0.0  # clock seconds at which the first of them was seen to be the first
        self.forecast = Forecast()
        self.anchor: Anchor | None = None  # while somebody wants to know when the device worked
        self.last_layout: Layout | None = None  # of the batch that was enqueued last
        self._warm_layout: Layout | None = None  # that the context ran last, not by a graph
        self._device = device
        self._stream = stream
        name_ranges(stream)
        self._clock = clock
        self._is_unified = device.is_unified
        self.lanes = [
            Lane(
                self,
                device,
                device.open_event(),
                tuple(
                    device.open_event(is_timed=True) for _ in range(NUM_MARKS if has_marks else 0)
                ),
                host_inputs,
            )
            for _ in range(num_lanes)
        ]

    def use_graphs(self, tally: GraphTally) -> None:
        """Capture CUDA graphs from now on, where the stream can; counted in `tally`."""
        if isinstance(self._stream, CapturableStream):
            for lane in self.lanes:
                lane.graphs = LaneGraphs(self._stream, tally, self._graph_obstacle)

    def free_lane(self) -> Lane | None:
        """Return a lane that can take a batch now."""
        if self.state is SlotState.OPEN:
            for lane in self.lanes:
                if lane.state is LaneState.FREE:
                    return lane
        return None

    def enqueue(self, lane: Lane, batch: Batch[Any]) -> None:
        """Put the batch's copies and its computation on the stream, behind what is there.

        What fails here is kept as the lane's error and comes out with its completion.
        """
        lane.batch = batch
        self.last_layout = batch.layout.runs_as
        lane.enqueued_at = self._clock()
        try:
            if not self._is_unified:
                self._enqueue_with_copies(lane, batch)
            elif batch.is_alone:
                self._enqueue_in_place(lane, batch)
            else:
                self._enqueue_gathered(lane, batch)
        except Exception as error:  # noqa: BLE001 -- any failure must leave the lane to its event
            lane.error = error
        lane.state = LaneState.IN_FLIGHT
        self.in_flight.append(lane)
        try:
            self._stream.record(lane.event)
        except DeviceError as error:
            lane.error = lane.error or error

    def due_at(self) -> float:
        """Return when the first lane in flight is likely to be done, in clock seconds."""
        lane = self.in_flight[0]
        assert lane.batch is not None
        began_at = max(lane.enqueued_at, self.first_since)
        return began_at + self.forecast.least_s(lane.batch.layout)

    def done_at(self, now: float) -> float:
        """Return when all that is in flight is likely to be done, in clock seconds; not past."""
        lane = self.in_flight[0]
        assert lane.batch is not None
        began_at = max(lane.enqueued_at, self.first_since)
        done_at = max(began_at + self.forecast.mean_s(lane.batch.layout), now)
        if len(self.in_flight) > 1:
            for lane in islice(self.in_flight, 1, None):
                assert lane.batch is not None
                done_at += self.forecast.mean_s(lane.batch.layout)
        return done_at

    def overwrite_outputs(self, lane: Lane, layout: Layout, block: Block) -> None:
        """Copy a block's bytes over the outputs on the device, to see what a run writes."""
        assert lane.memory is not None
        start = layout.outputs_start
        self._stream.copy_h2d(
            DevicePtr(lane.memory.ptr + start),
            HostPtr(block.ptr + start),
            layout.size_bytes - start,
        )

    def outputs(self, lane: Lane, index: int) -> Sequence[Output]:
        """Return (shape, bytes) of each output of the batch's request `index`; the lane is done.

        The memoryviews lead into the request's block: valid until the block is released.
        """
        assert lane.batch is not None
        assert lane.binding is not None
        if lane.binding.outputs is not None:
            return lane.binding.outputs
        request = lane.batch.requests[index]
        if request.layout.output_shapes is None:
            results, lane.binding.results = lane.binding.results, []
            return results
        if lane.is_unsplit:
            lane.is_unsplit = False
            scatter(lane.batch.layout, parts_of(lane.batch), lane.outputs.view)
        block: Block = request.block
        return block.parts(request.layout).outputs

    def move_to(self, state: SlotState) -> None:
        """Change the slot's state; a step that is not in the table changes nothing and raises."""
        if state is self.state:
            return
        if state not in SLOT_STEPS[self.state]:
            raise ValueError(f"a slot cannot go from {self.state.value} to {state.value}")
        self.state = state

    def synchronize(self) -> None:
        """Wait for everything enqueued; for set-up and drain only."""
        self._stream.synchronize()

    def close(self) -> None:
        """Finish the stream, then free context, lanes and stream. A second call does nothing.

        In this order: TensorRT wants its stream to outlive the context.
        """
        if self.state is SlotState.CLOSED:
            return
        self.move_to(SlotState.CLOSED)
        with ExitStack() as stack:  # closes in reverse, and the rest, too, when one fails
            stack.callback(self._stream.close)
            for lane in self.lanes:
                stack.callback(lane.close)
            stack.callback(self.context.close)
            stack.callback(self._stream.synchronize)

    def _enqueue_in_place(self, lane: Lane, batch: Batch[Any]) -> None:
        """Unified memory: the engine works on the block of the batch's only request."""
        (request,) = batch.requests
        block, layout = request.block, request.layout
        assert block is not None
        binding = block.bindings.get(layout)
        if binding is None:
            binding = self.context.bind(
                layout,
                [block.ptr + offset for offset in layout.input_offsets],
                [block.ptr + offset for offset in layout.output_offsets],
            )
            if layout.output_shapes is not None:
                binding.outputs = [*block.parts(layout).outputs]
            block.keep_binding(layout, binding)
        lane.binding = binding
        if self.is_inline:
            self._compute(lane, binding)  # what it raises is the lane's error, as of a launch
        else:
            self._stream.launch(partial(self._compute, lane, binding))

    def _enqueue_gathered(self, lane: Lane, batch: Batch[Any]) -> None:
        """Unified memory and several requests: the engine works on memory of the lane."""
        lane.binding = lane.binding_for(batch.layout.runs_as)
        work = partial(self._compute_gathered, lane, lane.binding, batch.layout, parts_of(batch))
        if self.is_inline:
            work()
        else:
            self._stream.launch(work)

    def _compute_gathered(
        self, lane: Lane, binding: Binding, layout: Layout, parts: Sequence[Parts]
    ) -> None:
        """Copy, run and copy back, all in the launcher's turn or inline."""
        began_at = self._clock()
        gather(layout, parts, lane.inputs.view)
        self._compute(lane, binding)
        scatter(layout, parts, lane.outputs.view)
        ended_at = self._clock()
        lane.gathered = Timing(
            started_at=began_at,
            h2d_s=lane.started_at - began_at,
            execute_s=lane.finished_at - lane.started_at,
            d2h_s=ended_at - lane.finished_at,
            ended_at=ended_at,
        )

    def _compute(self, lane: Lane, binding: Binding) -> None:
        """Run on the launcher, or inline: the engine blocks until it is done."""
        lane.started_at = self._clock()
        self.context.enqueue(binding)
        self._warm_layout = binding.layout
        lane.finished_at = self._clock()

    def _enqueue_with_copies(self, lane: Lane, batch: Batch[Any]) -> None:
        stream, layout = self._stream, batch.layout
        binding = lane.binding = lane.binding_for(layout.runs_as)
        if layout.values:
            lane.take_values(layout)
        compute = partial(self._compute, lane, binding)
        graph = None if lane.graphs is None else lane.graphs.pick(binding, compute)
        self._mark(lane, 0)
        copy_in(stream, lane, batch)
        self._mark(lane, 1)
        if graph is None:
            stream.launch(compute)
        else:
            graph.launch()
        self._mark(lane, 2)
        copy_out(stream, lane, batch)
        self._mark(lane, 3)

    def _graph_obstacle(self, layout: Layout) -> MissReason | None:
        if self.in_flight:
            return "busy"
        return None if self._warm_layout is layout else "cold"

    def _mark(self, lane: Lane, index: int) -> None:
        if lane.marks:
            self._stream.record(lane.marks[index])
