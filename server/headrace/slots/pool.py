"""The slots of one model, and which lane takes the next batch.

The least busy slot takes it; of several, one that ran the same layout last, since its context is
set up for it, or that ran nothing yet; of several still, they go in turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from headrace.engines.base import Layout
from headrace.slots.lane import Lane
from headrace.slots.slot import Slot
from headrace.slots.state import SlotState


class SlotPool:
    """All slots of a model."""

    def __init__(self, slots: Sequence[Slot]) -> None:
        self.slots = tuple(slots)
        # The common case on small models: nothing to choose.
        self._only = self.slots[0] if len(self.slots) == 1 else None
        self._turn = 0

    @property
    def is_ready(self) -> bool:
        """Whether any slot can take work."""
        return any(slot.state is SlotState.OPEN for slot in self.slots)

    @property
    def has_free_lane(self) -> bool:
        """Whether a batch could be enqueued now."""
        if self._only is not None:
            return self._only.free_lane() is not None
        for slot in self.slots:  # noqa: SIM110 -- asked for every batch, and any() is twice as slow
            if slot.free_lane() is not None:
                return True
        return False

    def least_s(self, layout: Layout) -> float:
        """Return what a run of this layout will hardly fall below, in seconds; 0 when unknown."""
        return min((slot.forecast.least_s(layout) for slot in self.slots), default=0.0)

    def starts_at(self, now: float) -> float:
        """Return when a batch that is enqueued now is likely to begin to run, in clock seconds.

        That is `now` while some slot has nothing in flight, and where nothing is known; else when
        the first slot with a free lane has done what it has. Without any free lane it is when the
        first slot has done all of it.
        """
        with_free_lane, without = inf, inf
        for slot in self.slots:
            if slot.state is SlotState.OPEN:
                if not slot.in_flight:
                    return now
                done_at = slot.done_at(now)
                if len(slot.in_flight) < len(slot.lanes):
                    with_free_lane = min(with_free_lane, done_at)
                elif done_at < without:
                    without = done_at
        begins_at = without if with_free_lane == inf else with_free_lane
        return now if begins_at == inf else begins_at

    def next_lane(self, layout: Layout | None = None) -> Lane | None:
        """Return the free lane for a batch of this layout.

        None when every lane is in flight or every slot is out of service.
        """
        if self._only is not None:
            return self._only.free_lane()
        slots = self.slots
        if layout is not None:
            layout = layout.runs_as
        best: Slot | None = None
        best_index, best_is_warm = 0, False
        for step in range(len(slots)):
            index = (self._turn + step) % len(slots)
            slot = slots[index]
            if slot.state is not SlotState.OPEN or len(slot.in_flight) == len(slot.lanes):
                continue
            is_warm = slot.last_layout is layout or slot.last_layout is None
            if (
                best is None
                or len(slot.in_flight) < len(best.in_flight)
                or (is_warm and not best_is_warm and len(slot.in_flight) == len(best.in_flight))
            ):
                best, best_index, best_is_warm = slot, index, is_warm
                if is_warm and not slot.in_flight:
                    break
        if best is None:
            return None
        self._turn = (best_index + 1) % len(slots)
        return best.free_lane()

    def close(self) -> None:
        """Close every slot, the rest too when one fails. A second call does nothing."""
        errors: list[Exception] = []
        for slot in reversed(self.slots):
            try:
                slot.close()
            except Exception as error:  # noqa: BLE001 -- all are closed, then all faults are told
                errors.append(error)
        if errors:
            raise ExceptionGroup("closing slots", errors)
