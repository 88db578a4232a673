"""The poller: the one place that asks events whether they are done. It never blocks.

Rules
- Called from the thread that steps the core; a sweep costs one query a busy slot, since a stream
  finishes its lanes in order and only the oldest one can be next.
- Three answers: done, not yet, or an error. An error of the engine ends that lane alone. An error
  of the device faults the slot: its lanes end with the error, but are never freed for reuse.
- There is a bound: a lane that is not done after `stall_timeout_s` faults its slot.
- It costs nothing when nothing is in flight: then nobody calls it.
"""

from __future__ import annotations

from math import inf

from headrace.errors import DeviceError
from headrace.slots.lane import Lane
from headrace.slots.slot import Slot
from headrace.slots.state import SlotState

STALL_TIMEOUT_S = (
    120.0  # far above any inference; below it a hung GPU would hold its callers forever
)


class Poller:
    """Watches the lanes in flight of all slots of one device."""

    def __init__(self, *, stall_timeout_s: float = STALL_TIMEOUT_S) -> None:
        self._busy: dict[Slot, None] = {}  # ordered: the slot that waits longest is asked first
        self._stall_timeout_s = stall_timeout_s
        self.num_sweeps = 0
        self.sticky: DeviceError | None = None

    @property
    def is_idle(self) -> bool:
        """Whether nothing is in flight."""
        return not self._busy

    @property
    def num_in_flight(self) -> int:
        """How many lanes are in flight."""
        return sum(len(slot.in_flight) for slot in list(self._busy))  # read by scrapers, too

    @property
    def num_busy_slots(self) -> int:
        """How many slots have a lane in flight."""
        return len(self._busy)

    def next_look(self, now: float) -> float | None:
        """Return when a lane in flight may have stalled, in clock seconds; None with none."""
        return now + self._stall_timeout_s if self._busy else None

    @property
    def due_at(self) -> float:
        """When the lane that is done first is likely to be done, in clock seconds."""
        return min((slot.due_at() for slot in self._busy), default=inf)

    def watch(self, slot: Slot) -> None:
        """Look after a slot that has just enqueued."""
        self._busy[slot] = None

    def poll_once(self, now: float) -> list[Lane]:
        """Ask every busy slot once; return the lanes that ended, their `error` set if they failed.

        The caller reads the outputs, ends the requests and then frees each lane whose slot is not
        faulted.
        """
        self.num_sweeps += 1
        ended: list[Lane] = []
        idle: list[Slot] = []
        for slot in self._busy:
            self._sweep(slot, now, ended)
            if not slot.in_flight:
                idle.append(slot)
        for slot in idle:
            del self._busy[slot]
        return ended

    def poll_slot(self, slot: Slot, now: float) -> list[Lane]:
        """Ask one slot that is not watched, right after its inline work."""
        ended: list[Lane] = []
        self._sweep(slot, now, ended)
        return ended

    def fault(self, slot: Slot, error: Exception) -> list[Lane]:
        """Take the slot out of service; return its lanes in flight, each with an error."""
        if slot.state is SlotState.OPEN:
            slot.move_to(SlotState.FAULTED)
        lanes = list(slot.in_flight)
        slot.in_flight.clear()
        for lane in lanes:
            lane.error = lane.error or error
        return lanes

    def _sweep(self, slot: Slot, now: float, ended: list[Lane]) -> None:
        in_flight = slot.in_flight
        while in_flight:
            lane = in_flight[0]
            try:
                if not lane.event.is_done():
                    if now - lane.enqueued_at > self._stall_timeout_s:
                        raise DeviceError(
                            f"slot {slot.index} did not finish within {self._stall_timeout_s:g} s"
                        )
                    return
            except DeviceError as error:
                if error.sticky:
                    self.sticky = error
                ended.extend(self.fault(slot, error))
                return
            except Exception as error:  # noqa: BLE001 -- whatever the work raised belongs to its lane
                lane.error = lane.error or error
            in_flight.popleft()
            slot.first_since = now
            ended.append(lane)
