"""Since when the oldest of some requests waits, where some count from others' time.

A heap by that time. Who has left is found at the top and taken off there, or cleared away when most
of the heap has left; so a look costs no more than the logarithm of how many wait.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heapify, heappop, heappush
from math import inf

from headrace.scheduling.flow import Entry
from headrace.scheduling.request import Request

SPARE = 16  # of those that have left, before they are cleared away all at once


class Ages:
    """The ages of the requests of one level."""

    __slots__ = ("_entries", "_heap")

    def __init__(self, entries: Mapping[Request, Entry]) -> None:
        """Begin with who waits.

        Args:
            entries: Kept up to date by their owner; who is not among them has left.
        """
        self._entries = entries
        self._heap: list[tuple[float, int, Entry]] = []
        self._rebuild()

    def __len__(self) -> int:
        """How many places are kept, those of who has left included."""
        return len(self._heap)

    def add(self, entry: Entry) -> None:
        """Take in an entry that is among those that wait."""
        heappush(self._heap, (entry[3], entry[1], entry))
        if len(self._heap) > 2 * len(self._entries) + SPARE:
            self._rebuild()

    def since(self) -> float:
        """Return since when the oldest waits; infinity when none does."""
        heap, entries = self._heap, self._entries
        while heap:
            since, _, entry = heap[0]
            if entries.get(entry[2]) is entry:
                return since
            heappop(heap)
        return inf

    def _rebuild(self) -> None:
        self._heap = [(entry[3], entry[1], entry) for entry in self._entries.values()]
        heapify(self._heap)
