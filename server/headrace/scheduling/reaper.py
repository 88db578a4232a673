"""Ends the idle sequences of all lines in time, though nothing arrives."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.scheduling.line import Line
from headrace.scheduling.sequences import SequenceBatcher


class Reaper:
    """Knows the lines whose models keep state between requests.

    Attributes:
        lines: These; nothing is to do where there are none.
    """

    def __init__(self) -> None:
        self.lines: list[Line] = []

    def add(self, line: Line) -> None:
        """Look after a line, if it has sequences."""
        if line.sequences is not None:
            self.lines.append(line)

    def remove(self, line: Line) -> None:
        """Forget a line; one that has no sequences is not known."""
        if line in self.lines:
            self.lines.remove(line)

    def reap(self, now: float) -> None:
        """End what has been idle for too long; who waits for its seat gets it."""
        for sequences in self._all():
            sequences.reap(now)

    def next_reap(self) -> float | None:
        """Return when `reap` may find something to do, in clock seconds; None for never."""
        looks = (sequences.next_reap() for sequences in self._all())
        return min((look for look in looks if look is not None), default=None)

    def _all(self) -> Iterator[SequenceBatcher]:
        for line in self.lines:
            for each in (line, *line.pins):
                if each.sequences is not None:
                    yield each.sequences
