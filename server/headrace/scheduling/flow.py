"""One source's waiting requests of one kind and priority level, in the order that they should run.

A sorted list: what comes goes to its end nearly always, and what runs is taken from its front. A
request that leaves is found by search, so that nothing of it stays behind.
"""

from __future__ import annotations

from bisect import bisect_left, insort

from headrace.scheduling.fair import Source
from headrace.scheduling.request import Request

Entry = tuple[float, int, Request, float, float]
"""(key, number, request, since, due), all times in clock seconds.

Entries sort by key, then by number, which rises with each request of the model. `since` is when the
request began to wait, or the one that it took the place of; `due` when its answer should be there:
infinity when that does not matter.
"""


class Flow:
    """Waiting requests of one source."""

    __slots__ = ("entries", "is_listed", "source")

    def __init__(self, source: Source) -> None:
        """Start empty; `is_listed` is the level's own."""
        self.source = source
        self.entries: list[Entry] = []
        self.is_listed = False

    def add(self, entry: Entry) -> None:
        """Put an entry in its place."""
        entries = self.entries
        if not entries or entries[-1] < entry:
            entries.append(entry)
        else:
            insort(entries, entry)

    def remove(self, entry: Entry) -> None:
        """Take an entry out that is in."""
        del self.entries[bisect_left(self.entries, entry)]

    def first_due(self, limit: float) -> int:
        """Return the index of the first entry that is due at `limit` or later; else the length."""
        for index, entry in enumerate(self.entries):
            if entry[4] >= limit:
                return index
        return len(self.entries)
