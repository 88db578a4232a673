"""The slots of one model, and which lane takes the next batch.

An idle slot takes it: of several, one that ran the same layout last, since its context is set up
for it, or that ran nothing yet; of several still, they go in turn. When none is idle, the one that
is likely to be done first takes it.
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
        self.slots = tuple(slots)  # all of them, reserved ones too
        self._turn = 0
        self._share(self.slots)

    @property
    def num_reserved(self) -> int:
        """How many slots are somebody's alone."""
        return len(self.slots) - len(self._shared)

    @property
    def is_ready(self) -> bool:
        """Whether any slot can take work."""
        return any(slot.state is SlotState.OPEN for slot in self._shared)

    @property
    def is_inline(self) -> bool:
        """Whether its slots compute within `enqueue`, on the thread that steps the core."""
        return all(slot.is_inline for slot in self.slots)

    @property
    def has_free_lane(self) -> bool:
        """Whether a batch could be enqueued now."""
        if self._only is not None:
            return self._only.free_lane() is not None
        for slot in self._shared:  # noqa: SIM110 -- asked for every batch, and any() is twice as slow
            if slot.free_lane() is not None:
                return True
        return False

    def num_busy(self) -> int:
        """Return how many slots that work have something in flight."""
        if self._only is not None:
            return 1 if self._only.in_flight and self._only.state is SlotState.OPEN else 0
        return len([1 for slot in self._shared if slot.in_flight and slot.state is SlotState.OPEN])

    def num_idle(self) -> int:
        """Return how many slots that work have nothing in flight."""
        if self._only is not None:
            return 0 if self._only.in_flight or self._only.state is not SlotState.OPEN else 1
        slots = self._shared
        return len([1 for slot in slots if not slot.in_flight and slot.state is SlotState.OPEN])

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
        for slot in self._shared:
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

    def ends_at(self, now: float) -> float:
        """Return when a slot that is at work, and has a free lane, is likely to be done first.

        In clock seconds; infinity when there is none.
        """
        return min((slot.done_at(now) for slot in self._half_busy()), default=inf)

    def next_lane(self, layout: Layout | None = None, *, is_behind: bool = False) -> Lane | None:
        """Return the free lane for a batch of this layout.

        None when every lane is in flight or every slot is out of service.

        Args:
            layout: Of the batch; any where there is none.
            is_behind: Rather behind the work that is done first than on an idle slot.
        """
        if self._only is not None:
            return self._only.free_lane()
        if is_behind and (lane := self._first_done()) is not None:
            return lane
        slots = self._shared
        if layout is not None:
            layout = layout.runs_as
        best_index: int | None = None
        for step in range(len(slots)):
            index = (self._turn + step) % len(slots)
            slot = slots[index]
            if slot.state is SlotState.OPEN and not slot.in_flight:
                if slot.last_layout is layout or slot.last_layout is None:
                    best_index = index
                    break
                best_index = index if best_index is None else best_index
        if best_index is None:
            return self._first_done()
        self._turn = (best_index + 1) % len(slots)
        return slots[best_index].free_lane()

    def _first_done(self) -> Lane | None:
        """Return the free lane behind the work that is likely to be done first."""
        busy = self._half_busy()
        if not busy:
            return None
        return min(busy, key=lambda slot: slot.done_at(0.0)).free_lane()

    def _half_busy(self) -> list[Slot]:
        return [slot for slot in self._shared if slot.in_flight and slot.free_lane() is not None]

    def reserve(self) -> Slot | None:
        """Take a slot out for one user alone, the least busy; None when none would be left.

        What is in flight on it is served.
        """
        able = [slot for slot in self._shared if slot.state is SlotState.OPEN]
        if len(able) < 2:
            return None
        reserved = min(able, key=lambda slot: len(slot.in_flight))
        self._share([slot for slot in self._shared if slot is not reserved])
        return reserved

    def release(self, reserved: Slot) -> None:
        """Let a reserved slot take anybody's work again, behind what is in flight on it."""
        self._share([slot for slot in self.slots if slot in self._shared or slot is reserved])

    def _share(self, slots: Sequence[Slot]) -> None:
        self._shared = tuple(slots)
        # The common case on small models: nothing to choose.
        self._only = self._shared[0] if len(self._shared) == 1 else None

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
