"""The states of lanes and slots, and which step leads where.

Rules
- A lane is FREE or IN_FLIGHT. Only the completion of its event frees it: not a cancellation, not a
  deadline, not a failed enqueue.
- A slot is OPEN until it is CLOSED, or FAULTED and then CLOSED. A faulted slot takes no more work
  and its lanes in flight are never freed for reuse: nobody can say that the device is done with
  their memory.
"""

from __future__ import annotations

from enum import Enum


class LaneState(Enum):
    """What a lane is doing."""

    FREE = "free"
    IN_FLIGHT = "in flight"


class SlotState(Enum):
    """Whether a slot takes work."""

    OPEN = "open"
    FAULTED = "faulted"
    CLOSED = "closed"


SLOT_STEPS: dict[SlotState, frozenset[SlotState]] = {
    SlotState.OPEN: frozenset({SlotState.FAULTED, SlotState.CLOSED}),
    SlotState.FAULTED: frozenset({SlotState.CLOSED}),
    SlotState.CLOSED: frozenset(),
}
