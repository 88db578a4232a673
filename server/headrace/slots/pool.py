"""The slots of one model, and which lane takes the next batch."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.slots.lane import Lane
from headrace.slots.slot import Slot
from headrace.slots.state import SlotState


class SlotPool:
    """Round robin over slots: the least busy slot takes the batch, ties go in turn."""

    def __init__(self, slots: Sequence[Slot]) -> None:
        self.slots = tuple(slots)
        self._turn = 0

    @property
    def is_ready(self) -> bool:
        """Whether any slot can take work."""
        return any(slot.state is SlotState.OPEN for slot in self.slots)

    def next_lane(self) -> Lane | None:
        """Return a free lane, None when every lane is in flight or every slot is out of service."""
        slots = self.slots
        if len(slots) == 1:  # the common case on small models; nothing to choose
            return slots[0].free_lane()
        best: Slot | None = None
        best_index = 0
        for step in range(len(slots)):
            index = (self._turn + step) % len(slots)
            slot = slots[index]
            if slot.state is not SlotState.OPEN or len(slot.in_flight) == len(slot.lanes):
                continue
            if best is None or len(slot.in_flight) < len(best.in_flight):
                best, best_index = slot, index
                if not slot.in_flight:
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
