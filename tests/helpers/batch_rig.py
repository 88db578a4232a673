"""Batches on one slot of a device in the test's hand: two inputs, two outputs, rows in all of them.

The engine works on the memory that it is bound to when its turn comes, and notes what it found in
the inputs: what was copied too late, or reused too early, shows.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.device.base import Device, Stream
from headrace.engines.base import Binding, Kind, Layout, Shape
from headrace.engines.layout import pad_layout, plan_layout
from headrace.slots.batch import Batch, Direct
from headrace.slots.blocks import Block, BlockPool
from headrace.slots.lane import Lane
from headrace.slots.slot import Slot

Bytes = npt.NDArray[np.uint8]
WIDTHS = (5, 3)  # bytes a row of each input; outputs are as wide, in the other order
STALE = 0xC3  # what a block holds of another request


class Mirror:
    """A context: the first output is the second input plus 1, the second is the first plus 2."""

    def __init__(self) -> None:
        self.seen: list[list[Bytes]] = []  # the inputs of each run, padding included
        self.num_bound = 0
        self.error: Exception | None = None  # raised by the next run

    def bind(
        self, layout: Layout, input_ptrs: Sequence[int], output_ptrs: Sequence[int]
    ) -> Binding:
        """Keep the addresses."""
        self.num_bound += 1
        return Binding(layout, tuple(input_ptrs), tuple(output_ptrs))

    def enqueue(self, binding: Binding) -> None:
        """Compute on the memory as it is now."""
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        layout = binding.layout
        inputs = [
            at(ptr, size) for ptr, size in zip(binding.input_ptrs, layout.input_sizes, strict=True)
        ]
        self.seen.append([each.copy() for each in inputs])
        for place, ptr in enumerate(binding.output_ptrs):
            at(ptr, layout.output_sizes[place])[:] = inputs[1 - place] + np.uint8(1 + place)

    def close(self) -> None:
        """Nothing to close."""


class Asked:
    """A request of some rows, staged in a block that held another one's data."""

    def __init__(self, blocks: BlockPool, layout: Layout, rows: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.layout = layout
        self.rows = rows
        self.direct: Direct | None = None
        self.inputs = [rng.integers(0, 256, (rows, width), np.uint8) for width in WIDTHS]
        block = blocks.lease(layout.size_bytes)
        assert block is not None
        self.block: Block | None = block
        block.view[:] = bytes([STALE]) * len(block.view)
        for offset, each in zip(layout.input_offsets, self.inputs, strict=True):
            block.view[offset : offset + each.size] = each.tobytes()

    def expected(self) -> list[tuple[Shape, bytes]]:
        """What numpy makes of its inputs."""
        first, second = self.inputs
        return [
            (second.shape, (second + np.uint8(1)).tobytes()),
            (first.shape, (first + np.uint8(2)).tobytes()),
        ]


class BatchRig:
    """One slot, and blocks for its requests."""

    def __init__(self, device: Device, stream: Stream, **options: Any) -> None:
        self.device = device
        self.stream = stream
        self.context = Mirror()
        self.blocks = BlockPool(device, 64 << 20)
        self.slot = Slot(0, device, stream, self.context, clock=lambda: 0.0, **options)
        self.padded_to: dict[int, int] = {}  # rows -> rows that are run in their place
        self.kind = Kind(self._plan)
        self._layouts: dict[int, Layout] = {}

    def ask(self, rows: int, *, seed: int = 0) -> Asked:
        """Stage a request, laid out for its own rows."""
        return Asked(self.blocks, self._own(rows), rows, seed)

    def batch(self, *rows: int) -> Batch[Asked]:
        """Stage requests of these rows for one batch."""
        asked = [self.ask(each, seed=index) for index, each in enumerate(rows)]
        return Batch(asked, self.kind.layout(sum(rows)), sum(rows))

    def enqueue(self, batch: Batch[Asked], lane: int = 0) -> Lane:
        """Enqueue on one of the lanes."""
        taken = self.slot.lanes[lane]
        self.slot.enqueue(taken, batch)
        return taken

    def end(self, lane: Lane) -> None:
        """Wait for a lane, as the poller would see it done; raises what failed."""
        self.stream.synchronize()
        assert lane is self.slot.in_flight.popleft()
        assert lane.event.is_done()
        if lane.error is not None:
            raise lane.error

    def answers(self, lane: Lane) -> list[list[tuple[Shape, bytes]]]:
        """Take the answers out of a lane that is done and free it."""
        assert lane.batch is not None
        indices = range(len(lane.batch.requests))
        answers = [self.slot.outputs(lane, index) for index in indices]
        lane.free()
        return [[(shape, bytes(each)) for shape, each in answer] for answer in answers]

    def run(self, batch: Batch[Asked]) -> list[list[tuple[Shape, bytes]]]:
        """Run one batch on its own."""
        lane = self.enqueue(batch)
        self.end(lane)
        return self.answers(lane)

    def release(self, batch: Batch[Asked]) -> None:
        """Give the blocks back."""
        for request in batch.requests:
            assert request.block is not None
            self.blocks.release(request.block)
            request.block = None

    def close(self) -> None:
        """Close everything."""
        self.slot.close()
        self.blocks.close()

    def _own(self, rows: int) -> Layout:
        layout = self._layouts.get(rows)
        if layout is None:
            shapes = [(rows, width) for width in WIDTHS]
            sizes = [rows * width for width in WIDTHS]
            layout = plan_layout(shapes, sizes, shapes[::-1], sizes[::-1])
            layout = self._layouts[rows] = replace(layout, kind=self.kind)
        return layout

    def _plan(self, rows: int) -> Layout:
        if rows not in self.padded_to:
            return self._own(rows)
        padded = pad_layout(self._own(rows), self._own(self.padded_to[rows]))
        assert padded is not None
        return padded


def expected(batch: Batch[Asked]) -> list[list[tuple[Shape, bytes]]]:
    """What numpy makes of a batch."""
    return [request.expected() for request in batch.requests]


def at(ptr: int, size: int) -> Bytes:
    """(size,) uint8 at an address."""
    if not size:
        return np.zeros(0, np.uint8)
    return np.ctypeslib.as_array((ctypes.c_ubyte * size).from_address(ptr))
