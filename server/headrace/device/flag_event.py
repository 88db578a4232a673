"""An event that is a flag in this process: what host and sim streams record.

Rules
- Whoever records it also asks it: one thread. Whoever runs the stream finishes it: any one thread.
- Every recording has a ticket, and the event is done when its last ticket is. So an event that is
  recorded anew while it is in flight is not done before the new recording is, as in CUDA.
- `error` is written before `num_finished`: who sees the event done sees its error too.
"""

from __future__ import annotations

from headrace.device.base import Event
from headrace.device.event_rules import NEVER_RECORDED, check_timed
from headrace.device.ledger import Ledger, seal
from headrace.errors import DeviceError


class FlagEvent:
    """An event without a driver: two counters and the error of the work before it."""

    def __init__(self, ledger: Ledger, *, is_timed: bool = False) -> None:
        self.is_timed = is_timed
        self.is_closed = False
        self.num_recorded = 0
        self.num_finished = 0
        self.time_s = 0.0  # of the last finish, on the device's clock; only when timed
        self.error: BaseException | None = DeviceError(NEVER_RECORDED)
        self.name = ledger.enter("event")
        self._ledger = ledger

    def is_done(self) -> bool:
        """Say whether the last recording is done; raise what failed before it."""
        if self.num_finished != self.num_recorded:
            return False
        if self.error is not None:
            raise self.error
        return True

    def finish(self, ticket: int, error: BaseException | None, now: float) -> None:
        """Mark one recording as done, with the error of the work before it."""
        self.error = error
        self.time_s = now
        self.num_finished = ticket

    def close(self) -> None:
        """Forget the event; a second call does nothing."""
        if not self.is_closed:
            self.is_closed = True
            self._ledger.strike(self.name)
            seal(self, self.name, ["is_done"])


def elapsed_s(start: Event, end: Event) -> float:
    """Return the seconds between two flag events.

    Raises:
        DeviceError: One of them was not opened with `is_timed`, or is not done.
    """
    assert isinstance(start, FlagEvent), "an event of another device"
    assert isinstance(end, FlagEvent), "an event of another device"
    check_timed(start)
    check_timed(end)
    return end.time_s - start.time_s
