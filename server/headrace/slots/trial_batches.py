"""Runs batches of zeros before any request comes, and measures what each size takes.

Called while a model is loaded, like `slots/warmup.py`: nothing else is in flight on its slots.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Final

from headrace.engines.base import Layout
from headrace.errors import DeviceError, EngineError
from headrace.slots.batch import Batch
from headrace.slots.blocks import BlockPool
from headrace.slots.capacity import Capacity
from headrace.slots.slot import Slot
from headrace.slots.warmup import Trial, run, zeros

NUM_RUNS: Final = 5  # of each size, after one that sets the engine up for it
SIZE_S: Final = 0.3  # and no more once a size has taken so long
LONG_S: Final = 0.3  # a run that takes longer is a good enough measure, first though it be
WORSE: Final = 0.8  # of the best rate: a size that serves fewer rows a second does not pay
CHEAP_S: Final = 1e-3  # what a run may take to be tried all the same: who knows what larger ones do


class TrialBatches:
    """Batches of one model, by their number of rows.

    Args:
        layouts: By rows, what matters most first; 1 among them.
        blocks: Where their requests' blocks come from.
        clock: Seconds.
        until: Clock seconds from which on no other size is begun.
        is_optional: Nobody asked for batches: sizes are tried upwards, and none beyond the first
            that does not pay. Of large images that is most of what there is to try.
    """

    def __init__(
        self,
        layouts: Mapping[int, Layout],
        blocks: BlockPool,
        *,
        clock: Callable[[], float],
        until: float,
        is_optional: bool = False,
    ) -> None:
        self._layouts = layouts
        self._is_optional = is_optional
        self._blocks = blocks
        self._clock = clock
        self._until = until

    def measure(self, slot: Slot, capacity: Capacity) -> dict[int, str]:
        """Run every size some times on a slot's first lane and teach `capacity` what they take.

        Returns:
            The sizes that were left out, each with the reason.

        Raises:
            DeviceError: The device is dead.
        """
        return self._run_all(slot, capacity, has_news=True)

    def run_once(self, slot: Slot, capacity: Capacity) -> dict[int, str]:
        """Run every size once on a slot's first lane; `capacity` says which take too long."""
        return self._run_all(slot, capacity, has_news=False)

    def _run_all(self, slot: Slot, capacity: Capacity, *, has_news: bool) -> dict[int, str]:
        left: dict[int, str] = {}
        for rows in sorted(self._layouts) if self._is_optional else self._layouts:
            if self._is_optional and _is_worse(capacity.table()):
                break
            # At worst a batch takes in proportion, and it runs twice.
            if self._clock() + 2 * capacity.mean_s(rows) >= self._until:
                left[rows] = "they take too long"
                continue
            try:
                if not self._run(slot, rows, capacity if has_news else None):
                    left[rows] = "there is no staging memory for so many requests"
            except (EngineError, DeviceError) as error:
                if isinstance(error, DeviceError) and error.sticky:
                    raise
                left[rows] = str(error)
        return left

    def _run(self, slot: Slot, rows: int, capacity: Capacity | None) -> bool:
        with zeros(self._layouts[1], self._blocks, rows) as members:
            if len(members) < rows:
                return False
            batch = Batch(members, self._layouts[rows], rows)
            times_s = [_took_s(slot, batch)]
            if capacity is not None:
                if times_s[0] < LONG_S:
                    times_s = self._repeat(slot, batch)
                _teach(capacity, rows, times_s)
        return True

    def _repeat(self, slot: Slot, batch: Batch[Trial]) -> list[float]:
        began_at = self._clock()
        times_s = [_took_s(slot, batch)]
        while len(times_s) < NUM_RUNS and self._clock() - began_at < SIZE_S:
            times_s.append(_took_s(slot, batch))
        return times_s


def _is_worse(table: Sequence[tuple[int, float]]) -> bool:
    """Say whether the largest size of a table does not pay, nor is cheap to try."""
    rates = [rows / took_s for rows, took_s in table]
    return bool(table) and rates[-1] < WORSE * max(rates) and table[-1][1] > CHEAP_S


def _took_s(slot: Slot, batch: Batch[Trial]) -> float:
    """Run once and return the seconds that the slot was busy for."""
    lane = slot.lanes[0]
    try:
        run(slot, lane, batch)
        for index in range(len(batch.requests)):
            slot.outputs(lane, index)
        return lane.timing(0.0).took_s
    finally:
        lane.free()


def _teach(capacity: Capacity, rows: int, times_s: list[float]) -> None:
    """The median first: what is learnt first weighs most."""
    capacity.learn(rows, median(times_s))
    for took_s in times_s:
        capacity.learn(rows, took_s)
