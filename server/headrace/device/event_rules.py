"""What the events of every adapter refuse to answer, and in which words."""

from __future__ import annotations

from typing import Protocol

from headrace.errors import DeviceError

NEVER_RECORDED = "the event was never recorded: nothing can be said about its work"


class TimedEvent(Protocol):
    """What `check_timed` looks at."""

    name: str
    is_timed: bool

    def is_done(self) -> bool:
        """Say whether the last recording is done."""


def check_timed(event: TimedEvent) -> None:
    """Refuse to time an event that has no time.

    Raises:
        DeviceError: It was not opened with `is_timed`, or is not done.
    """
    if not event.is_timed:
        raise DeviceError(f"{event.name} cannot be timed: open it with is_timed=True")
    if not event.is_done():
        raise DeviceError(f"{event.name} cannot be timed before it is done")
