"""The batches that a model is warmed up with, and the capacity that is measured on them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from headrace.engines.base import Layout
from headrace.errors import DeviceError, EngineError
from headrace.slots.blocks import BlockPool
from headrace.slots.capacity import Capacity
from headrace.slots.gather import hold
from headrace.slots.slot import Slot
from headrace.slots.trial_batches import TrialBatches

log = logging.getLogger(__name__)

MEASURE_S: Final = 5.0
"""No other size is begun after so long, on the slot that measures and on the others together: a
load is not delayed for ever by what traffic will tell all the same."""


class WarmBatches:
    """The usual batch sizes of one model.

    Args:
        name: The model's, for the log.
        layouts: By rows, what matters most first; empty where the model does not batch.
        blocks: Where requests are staged.
        clock: Seconds.
    """

    def __init__(
        self,
        name: str,
        layouts: Mapping[int, Layout],
        blocks: BlockPool,
        *,
        clock: Callable[[], float],
    ) -> None:
        self._name = name
        self._layouts = layouts
        self._blocks = blocks
        self._clock = clock

    @property
    def max_rows(self) -> int:
        """The largest size; 0 where the model does not batch."""
        return max(self._layouts, default=0)

    def hold(self, slot: Slot) -> None:
        """Have memory for the largest batch on every lane, so that it never moves.

        Called before graphs are captured, which have addresses baked in. Where there is no such
        memory, batches get what they need when they come.

        Raises:
            DeviceError: The device is dead.
        """
        if not self._layouts:
            return
        try:
            for lane in slot.lanes:
                hold(lane, self._layouts[self.max_rows], self.max_rows)
        except (DeviceError, EngineError) as error:
            if isinstance(error, DeviceError) and error.sticky:
                raise
            log.warning(
                "%s: no memory for batches of %d rows: %s", self._name, self.max_rows, error
            )

    def measure(self, slots: Sequence[Slot]) -> Capacity:
        """Run every size on every slot, and measure what it takes on the first.

        On a unified device the first is enough: there all slots run one engine.

        Raises:
            DeviceError: The device is dead.
        """
        capacity = Capacity()
        if not self._layouts:
            return capacity
        left = self._trials().measure(slots[0], capacity)
        if slots[0].lanes[0].memory is not None:
            trials = self._trials()
            for slot in slots[1:]:
                left |= trials.run_once(slot)
        for rows, reason in left.items():
            log.info("%s: batches of %d rows were not tried: %s", self._name, rows, reason)
        if table := capacity.table():
            log.info("%s: %s", self._name, describe(table))
        return capacity

    def _trials(self) -> TrialBatches:
        until = self._clock() + MEASURE_S
        return TrialBatches(self._layouts, self._blocks, clock=self._clock, until=until)


def describe(table: Sequence[tuple[int, float]]) -> str:
    """Say what batches take, (rows, seconds) each, and which serves the most rows per second."""
    sizes = ", ".join(f"{count(rows)} {took_s * 1e3:.3g} ms" for rows, took_s in table)
    best, best_s = max(table, key=lambda entry: entry[0] / entry[1])
    return f"{sizes}: best {best / best_s:,.0f} rows/s, at {count(best)}"


def count(rows: int) -> str:
    """Write a number of rows."""
    return f"{rows} row" if rows == 1 else f"{rows} rows"
