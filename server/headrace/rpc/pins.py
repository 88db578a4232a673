"""The slots that a stream has for itself: `headrace-pin-slot: true` in its metadata.

A slot is taken of each model that the stream asks, with its first request to it, and given back
when the stream ends. Where a model has none to spare, the stream ends with RESOURCE_EXHAUSTED: it
would not get what it asks for.
"""

from __future__ import annotations

from headrace.errors import RequestError
from headrace.escape import printable
from headrace.link.base import PinLink
from headrace.rpc.wishes import Metadata
from headrace.scheduling.line import Line

KEY = "headrace-pin-slot"


class Pins:
    """Which line serves the requests of one stream."""

    def __init__(self, link: PinLink, *, is_wanted: bool) -> None:
        self._link = link
        self._is_wanted = is_wanted
        self._pinned: dict[Line, Line] = {}

    def line_for(self, line: Line) -> Line:
        """Return the line to serve a request that would wait in this one.

        Raises:
            NoSlotError: The model has no slot to spare.
            RetiredError: The version is being unloaded.
        """
        if not self._is_wanted:
            return line
        pinned = self._pinned.get(line)
        if pinned is not None and pinned.pool.is_ready:
            return pinned
        for other in [each for each in self._pinned if each is line or self._is_over(each)]:
            self._give_back(other)
        pinned = self._pinned[line] = self._link.pin(line)
        return pinned

    def close(self) -> None:
        """Give every slot back; a second call does nothing."""
        for line in list(self._pinned):
            self._give_back(line)

    def _is_over(self, line: Line) -> bool:
        """Whether a version is being unloaded, and all that the stream asked of it is answered."""
        return line.is_retired and not self._pinned[line].has_work

    def _give_back(self, line: Line) -> None:
        self._link.unpin(line, self._pinned.pop(line))


def wants_pin(metadata: Metadata) -> bool:
    """Say whether a stream asks for slots of its own.

    Raises:
        RequestError: It says neither true nor false.
    """
    for key, value in metadata:
        if key == KEY:
            if value not in ("true", "false"):
                raise RequestError(
                    f"metadata '{KEY}' is '{printable(str(value), 64)}', expected true or false"
                )
            return value == "true"
    return False
