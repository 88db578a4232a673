"""Warm-up: zeros run through the lanes before any request does, and graphs are put to the proof.

Called while a model is loaded: nothing else is in flight on its slots, and waiting is allowed.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

from headrace.engines.base import Layout
from headrace.errors import UnavailableError
from headrace.slots.batch import Batch, Direct
from headrace.slots.blocks import Block, BlockPool
from headrace.slots.graphs import PLAIN_RUNS
from headrace.slots.lane import Lane
from headrace.slots.slot import Slot

if TYPE_CHECKING:
    from collections.abc import Iterator

log = logging.getLogger(__name__)

UNWRITTEN = b"\xa5"
"""What outputs are filled with before a replay: a graph that writes nothing must show."""


@dataclass(slots=True, eq=False)
class Trial:
    """A request of zeros."""

    layout: Layout
    block: Block | None
    rows: int = 1
    direct: Direct | None = None


def warm_up(slot: Slot, layout: Layout, blocks: BlockPool, *, lane: Lane | None = None) -> float:
    """Run zeros through a lane once and return how long the computation took, in seconds.

    Args:
        slot: One that nothing is in flight on.
        layout: Of the zeros.
        blocks: Where their block comes from.
        lane: One of the slot's; the first when none is named.

    Raises:
        EngineError: The engine refused them. A model may refuse zeros and yet serve real data.
        DeviceError: The device failed.
    """
    lane = lane or slot.lanes[0]
    with zeros(layout, blocks) as (trial,):
        try:
            run(slot, lane, Batch((trial,), layout, 1))
            slot.outputs(lane, 0)
            return lane.timing(0.0).execute_s
        finally:
            lane.free()


def run_tensors(
    slot: Slot,
    layout: Layout,
    tensors: Sequence[bytes],
    blocks: BlockPool,
    *,
    lane: Lane,
    rows: int = 1,
) -> None:
    """Run one request through a lane as if a client had sent it; its outputs are dropped.

    Args:
        slot: One that nothing is in flight on.
        layout: Of the request.
        tensors: Its inputs, in the layout's order.
        blocks: Where its block comes from.
        lane: One of the slot's.
        rows: Its batch dimension, 1 where there is none.

    Raises:
        EngineError: The engine refused it, or failed at it.
        DeviceError: The device failed.
        UnavailableError: Other models have all the staging memory in use.
    """
    with zeros(layout, blocks) as trials:
        if not trials:
            raise UnavailableError("the staging memory is in use; try again")
        (trial,) = trials
        assert trial.block is not None
        trial.rows = rows
        for offset, tensor in zip(layout.input_offsets, tensors, strict=True):
            trial.block.view[offset : offset + len(tensor)] = tensor
        run_as = layout if layout.kind is None else layout.kind.layout(rows)
        try:
            run(slot, lane, Batch((trial,), run_as, rows))
            slot.outputs(lane, 0)
        finally:
            lane.free()


def capture_graphs(slot: Slot, layouts: Sequence[Layout], blocks: BlockPool) -> int:
    """Capture a graph of every layout on every lane, and give all up if one replays wrong outputs.

    They are compared with plain runs after all of them were captured: one context makes them all,
    and what it does for one must not change another. A model of which one is wrong gets none, of
    other layouts later neither: those would not be compared.

    Returns:
        How many were captured and stand the proof.

    Raises:
        EngineError: The engine refused zeros.
        DeviceError: The device failed.
    """
    expected: dict[tuple[Lane, Layout], bytes] = {}
    for layout in sorted(layouts, key=lambda each: -each.size_bytes):  # so that no memory moves
        for lane in slot.lanes:
            with zeros(layout, blocks) as (trial,):
                digests = [_digest(slot, lane, trial) for _ in range(PLAIN_RUNS + 1)]
                expected[lane, layout] = digests[0]  # of a plain run; the last one was captured
    captured = [each for each in expected if each[0].has_graph(each[1])]
    for lane, layout in captured:
        if not _is_proven(slot, lane, layout, blocks, expected[lane, layout]):
            _give_up(slot, layout)
            return 0
    return len(captured)


def _is_proven(slot: Slot, lane: Lane, layout: Layout, blocks: BlockPool, expected: bytes) -> bool:
    with zeros(layout, blocks) as (trial,):
        assert trial.block is not None
        view = trial.block.view
        num_bytes = layout.size_bytes - layout.outputs_start
        view[layout.outputs_start : layout.size_bytes] = UNWRITTEN * num_bytes
        slot.overwrite_outputs(lane, layout, trial.block)
        return _digest(slot, lane, trial) == expected


def _give_up(slot: Slot, layout: Layout) -> None:
    for lane in slot.lanes:
        lane.give_up_graphs()
    log.warning(
        "slot %d runs without CUDA graphs: for inputs of shapes %s a replay gave other outputs "
        "than a plain run",
        slot.index,
        [list(shape) for shape in layout.input_shapes],
    )


def _digest(slot: Slot, lane: Lane, trial: Trial) -> bytes:
    """Run once and return a digest of the outputs."""
    digest = blake2b()
    try:
        run(slot, lane, Batch((trial,), trial.layout, 1))
        for _shape, content in slot.outputs(lane, 0):
            digest.update(content)
    finally:
        lane.free()
    return digest.digest()


def run(slot: Slot, lane: Lane, batch: Batch[Trial]) -> None:
    """Run a batch on a slot that nothing is in flight on, and wait for it; the lane stays taken.

    Raises:
        EngineError: The engine refused it.
        DeviceError: The device failed.
    """
    slot.enqueue(lane, batch)
    slot.synchronize()
    slot.in_flight.popleft()
    if lane.error is not None:
        raise lane.error
    lane.event.is_done()


@contextmanager
def zeros(layout: Layout, blocks: BlockPool, count: int = 1) -> Iterator[list[Trial]]:
    """Lease blocks of zeros for so many requests; for fewer, when the pool has no more."""
    with ExitStack() as leased:
        trials: list[Trial] = []
        while len(trials) < count and (block := blocks.lease(layout.size_bytes)) is not None:
            leased.callback(blocks.release, block)
            block.view[: layout.inputs_end] = bytes(layout.inputs_end)
            trials.append(Trial(layout, block))
        yield trials
