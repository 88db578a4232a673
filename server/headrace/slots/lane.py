"""A lane: one place for a batch in flight, with its device buffer and its completion event.

While one lane computes, the slot's other lane is already enqueued behind it on the same stream, so
the stream never runs dry. On a unified device one request alone is not copied: the engine reads and
writes its block, and the lane is only the event and the bookkeeping. Several are gathered in host
memory of the lane (`slots/gather.py`).
"""

from __future__ import annotations

from math import nan
from typing import TYPE_CHECKING, Any

from headrace.device.base import ALIGNMENT_BYTES, Device, DeviceBuffer, Event
from headrace.engines.base import Binding, Layout
from headrace.engines.layout import aligned
from headrace.slots.batch import Timing
from headrace.slots.graphs import LaneGraphs
from headrace.slots.region import HostRegion
from headrace.slots.state import LaneState

if TYPE_CHECKING:
    from headrace.slots.batch import Batch
    from headrace.slots.slot import Slot

MAX_BINDINGS = 256  # layouts kept ready a lane: few shapes, and each number of rows of them


class Lane:
    """One of a slot's places for a batch in flight."""

    __slots__ = (
        "_bindings",
        "_device",
        "_host_inputs",
        "_values",
        "batch",
        "binding",
        "enqueued_at",
        "error",
        "event",
        "finished_at",
        "gathered",
        "graphs",
        "inputs",
        "is_unsplit",
        "marks",
        "memory",
        "outputs",
        "slot",
        "started_at",
        "state",
    )

    def __init__(
        self,
        slot: Slot,
        device: Device,
        event: Event,
        marks: tuple[Event, ...],
        host_inputs: tuple[int, ...] = (),
    ) -> None:
        self._device = device
        self._host_inputs = host_inputs  # shape tensors, by their place among the inputs
        self._values = HostRegion(device)  # of these, read while the engine enqueues
        self._bindings: dict[Layout, Binding] = {}
        self.slot = slot
        self.event = event
        self.marks = marks  # timed events: begin, inputs there, computed, outputs there; or none
        self.graphs: LaneGraphs | None = None
        self.memory: DeviceBuffer | None = None  # inputs and outputs, laid out like the block
        self.inputs, self.outputs = HostRegion(device), HostRegion(device)  # of several requests
        self.is_unsplit = False  # the outputs of several lie in `outputs`, not yet in their blocks
        self.gathered: Timing | None = None  # of the last batch of several that the host ran
        self.state = LaneState.FREE
        self.batch: Batch[Any] | None = None
        self.binding: Binding | None = None
        self.error: Exception | None = None
        self.enqueued_at = nan  # clock seconds, when the host began to enqueue
        self.started_at = nan  # clock seconds of the computation, where the host itself runs it
        self.finished_at = nan

    def binding_for(self, layout: Layout) -> Binding:
        """Return the binding of this layout to the lane's memory, preparing it if new.

        Raises:
            EngineError: The engine cannot take these shapes.
            DeviceError: There is no device memory for them.
        """
        binding = self._bindings.get(layout)
        if binding is None:
            inputs_at, outputs_at = self._hold(layout)
            inputs = [inputs_at + offset for offset in layout.input_offsets]
            if self._host_inputs:
                self._keep(self._values.grow(sum(aligned(len(each)) for each in layout.values)))
                for index, offset in zip(self._host_inputs, _offsets(layout), strict=True):
                    inputs[index] = self._values.ptr + offset
            outputs = [outputs_at + offset for offset in layout.output_offsets]
            binding = self.slot.context.bind(layout, inputs, outputs)
            if len(self._bindings) >= MAX_BINDINGS:
                self._drop_binding(next(iter(self._bindings)))
            self._bindings[layout] = binding
        return binding

    def take_values(self, layout: Layout) -> None:
        """Put the values of shape tensors where the binding of this layout has them."""
        for offset, value in zip(_offsets(layout), layout.values, strict=True):
            self._values.view[offset : offset + len(value)] = value

    def _hold(self, layout: Layout) -> tuple[int, int]:
        """Have memory for a layout; return where offsets of inputs and of outputs count from."""
        if not self._device.is_unified:
            base = self._grown(layout.size_bytes).ptr
            return base, base
        assert self.state is LaneState.FREE, "the memory of a lane in flight must not move"
        has_moved = self.inputs.grow(layout.inputs_end)
        has_moved |= self.outputs.grow(layout.size_bytes - layout.outputs_start)
        self._keep(has_moved)
        return self.inputs.ptr, self.outputs.ptr - layout.outputs_start

    def _keep(self, has_moved: bool) -> None:
        """Keep the bindings, unless memory that they lead into has moved."""
        if has_moved:
            self._drop_bindings()

    def _grown(self, size_bytes: int) -> DeviceBuffer:
        """Return device memory of at least this size; only ever called while the lane is free."""
        assert self.state is LaneState.FREE, "the memory of a lane in flight must not move"
        size_bytes = max(size_bytes, ALIGNMENT_BYTES)  # empty tensors need an address, too
        if self.memory is None or self.memory.size_bytes < size_bytes:
            self._drop_bindings()
            if self.memory is not None:
                self.memory.close()
            self.memory = None
            self.memory = self._device.alloc_device(size_bytes)
        return self.memory

    def shrink(self) -> None:
        """Give up the host memory for batches of several; it comes back with the next of them."""
        self.inputs.close()
        self.outputs.close()
        self._keep(has_moved=self._device.is_unified)

    def has_graph(self, layout: Layout) -> bool:
        """Say whether there is a graph for this layout."""
        return self.graphs is not None and self.graphs.has(self._bindings[layout])

    def give_up_graphs(self) -> None:
        """Drop all graphs; no lane of this model captures any more."""
        assert self.graphs is not None, "there are no graphs"
        self.graphs.give_up()

    def _drop_bindings(self) -> None:
        """Forget all bindings: they point into memory that moves."""
        for layout in list(self._bindings):
            self._drop_binding(layout)

    def _drop_binding(self, layout: Layout) -> None:
        binding = self._bindings.pop(layout)
        if self.graphs is not None:
            self.graphs.forget(binding)

    def free(self) -> None:
        """Let go of the batch; the event must be done."""
        self.state = LaneState.FREE
        self.batch = None
        self.binding = None
        self.error = None
        self.is_unsplit = False

    def timing(self, now: float) -> Timing:
        """Return when and how long the batch ran; it is done, and was seen to be so at `now`.

        It is a `Placed` where the slot has an anchor.
        """
        timing = self._measured(now)
        anchor = self.slot.anchor
        return timing if anchor is None else anchor.place(self, timing, now)

    def _measured(self, now: float) -> Timing:
        if self.marks:
            begin, there, computed, back = self.marks
            elapsed = self._device.elapsed_s
            return Timing(
                started_at=self.enqueued_at,
                h2d_s=elapsed(begin, there),
                execute_s=elapsed(there, computed),
                d2h_s=elapsed(computed, back),
                ended_at=now,
            )
        assert self.batch is not None
        if self.gathered is not None and not self.batch.is_alone:
            return self.gathered
        execute_s = self.finished_at - self.started_at
        return Timing(self.started_at, nan, execute_s, nan, self.finished_at)

    def close(self) -> None:
        """Free the memory and the events; the stream must be idle. A second call does nothing."""
        self._bindings.clear()
        regions = (self.inputs, self.outputs, self._values)
        for resource in (self.graphs, self.memory, *regions, self.event, *self.marks):
            if resource is not None:
                resource.close()
        self.memory = None


def _offsets(layout: Layout) -> list[int]:
    """Return where the values of each shape tensor lie in the lane's host memory."""
    offsets, at = [], 0
    for value in layout.values:
        offsets.append(at)
        at += aligned(len(value))
    return offsets
