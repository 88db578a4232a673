"""The batches that a model is warmed up with, and what is measured on them: do they pay?"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from headrace.engines.base import Layout
from headrace.engines.batching_spec import BatchingSpec
from headrace.engines.model_spec import ModelSpec
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


MAX_HELD_BYTES: Final = 256 << 20
"""Of device memory a lane. A larger batch gets it when it comes, and graphs are captured anew."""

NEARLY: Final = 0.97
"""Of the best rate; what is nearer is measured no better, and smaller batches answer sooner."""


class WarmBatches:
    """The usual batch sizes of one model.

    Args:
        name: The model's, for the log.
        layouts: By rows, what matters most first; empty where the model does not batch.
        blocks: Where requests are staged.
        clock: Seconds.
        is_optional: The operator did not ask for batches, and each costs the host what it takes.
    """

    def __init__(
        self,
        name: str,
        layouts: Mapping[int, Layout],
        blocks: BlockPool,
        *,
        clock: Callable[[], float],
        is_optional: bool = False,
    ) -> None:
        self._name = name
        self._layouts = layouts
        self._blocks = blocks
        self._clock = clock
        self._is_optional = is_optional

    @property
    def max_rows(self) -> int:
        """The largest size; 0 where the model does not batch."""
        return max(self._layouts, default=0)

    def hold(self, slot: Slot) -> None:
        """Have memory for the largest batch on every lane of a GPU, so that it never moves.

        Called before graphs are captured, which have addresses baked in. Where there is no such
        memory, batches get what they need when they come.

        Raises:
            DeviceError: The device is dead.
        """
        layout = self._layouts.get(self.max_rows)
        if layout is None or layout.size_bytes > MAX_HELD_BYTES:
            return
        try:
            for lane in slot.lanes:
                hold(lane, layout, self.max_rows)
        except (DeviceError, EngineError) as error:
            if isinstance(error, DeviceError) and error.sticky:
                raise
            log.warning(
                "%s: no memory for batches of %d rows: %s", self._name, self.max_rows, error
            )

    def measure(self, slots: Sequence[Slot]) -> Capacity:
        """Run every size that may pay on every slot, and measure what it takes on the first.

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
                left |= trials.run_once(slot, capacity)
        else:
            slots[0].lanes[0].shrink()
            self._blocks.trim(self._layouts[1].size_bytes, 0)
        for rows, reason in left.items():
            log.info("%s: batches of %d rows were not tried: %s", self._name, rows, reason)
        if table := capacity.table():
            log.info("%s: %s", self._name, describe(table))
        return capacity

    def _trials(self) -> TrialBatches:
        until = self._clock() + MEASURE_S
        return TrialBatches(
            *(self._layouts, self._blocks),
            clock=self._clock,
            until=until,
            is_optional=self._is_optional,
        )


def batching_of(spec: ModelSpec, capacity: Capacity, *, is_asked: bool) -> BatchingSpec | None:
    """Return the policy of a model's queue, with batches that are worth their while.

    On a CPU most models serve no more rows per second in batches, and large rows fewer, because
    they have to be copied. Where the operator did not ask for batches, none are larger than pays.
    """
    batching, table = spec.batching, capacity.table()
    if batching is None or is_asked or not table:
        return batching
    rows = worthwhile_rows(table)
    if rows >= batching.max_rows:
        return batching
    log.info(
        "%s: at most %d of %d rows run together, more are no quicker; with `dynamic_batching` in "
        "config.pbtxt all do",
        spec.name,
        rows,
        batching.max_rows,
    )
    preferred = tuple(each for each in batching.preferred_rows if each <= rows)
    return replace(batching, max_rows=rows, preferred_rows=preferred)


def worthwhile_rows(table: Sequence[tuple[int, float]]) -> int:
    """Return the size beyond which larger batches serve hardly any more rows per second.

    Args:
        table: (rows, seconds) of each size, by rising size; not empty.
    """
    best = max(rows / took_s for rows, took_s in table)
    return next(rows for rows, took_s in table if rows / took_s >= NEARLY * best)


def describe(table: Sequence[tuple[int, float]]) -> str:
    """Say what batches take, (rows, seconds) each, and which serves the most rows per second."""
    sizes = ", ".join(f"{count(rows)} {took_s * 1e3:.3g} ms" for rows, took_s in table)
    best, best_s = max(table, key=lambda entry: entry[0] / entry[1])
    return f"{sizes}: best {best / best_s:,.0f} rows/s, at {count(best)}"


def count(rows: int) -> str:
    """Write a number of rows."""
    return f"{rows} row" if rows == 1 else f"{rows} rows"
