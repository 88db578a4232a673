"""The requests of one kind that wait, in the order in which they should run.

Order: the priority level, a lower level counting as less urgent by `AGING_S` for each step; inside
a level the source whose turn it is (`fair.py`); inside a source who is due first, then who came
first.

Rules
- Pure bookkeeping: who waits and in which order. When and how many run is decided elsewhere.
- Removal is exact, by search in sorted lists: nothing of a request stays behind when it has left.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from headrace.scheduling.fair import FairClock
from headrace.scheduling.flow import Entry
from headrace.scheduling.level import Level
from headrace.scheduling.request import Request

AGING_S = 1.0  # what one step of priority is worth: it bounds the wait of the lower levels
LATE_STEP = 0.5  # what has timed out in a level stands so many steps behind it


class Waiting:
    """Waiting requests of one kind."""

    __slots__ = ("_by_rank", "_clock_of", "_is_shared", "levels", "num_requests", "rows")

    def __init__(self, clock_of: Callable[[float], FairClock], *, is_shared: bool) -> None:
        """Start empty.

        Args:
            clock_of: Gives the clock of a rank: levels of other kinds have the same ones.
            is_shared: Whether there are sources that take turns.
        """
        self.rows = 0
        self.num_requests = 0
        self.levels: list[Level] = []  # by rank
        self._by_rank: dict[float, Level] = {}
        self._clock_of = clock_of
        self._is_shared = is_shared

    @property
    def since(self) -> float:
        """When the oldest began to wait; infinity when none waits."""
        if len(self.levels) == 1:
            return self.levels[0].since
        return min((level.since for level in self.levels), default=inf)

    def share(self) -> None:
        """Let sources take turns from now on."""
        self._is_shared = True
        for level in self.levels:
            level.share()

    def add(self, entry: Entry, rank: float) -> None:
        """Queue a request; rank 0 is the most urgent."""
        level = self._by_rank.get(rank)
        if level is None:
            level = self._open(rank)
        level.add(entry)
        self.rows += entry[2].rows
        self.num_requests += 1

    def remove(self, request: Request) -> bool:
        """Take a request out; False when it is not in."""
        for level in self.levels:
            if level.remove(request):
                self.rows -= request.rows
                self.num_requests -= 1
                return True
        return False

    def top(self, limit: float = -inf) -> Level | None:
        """Return the level whose turn it is, of those with a request due at `limit` or later."""
        levels = [level for level in self.levels if level.entries]
        levels.sort(key=_urgency)
        for level in levels:
            if limit == -inf or level.head(limit) is not None:
                return level
        return None

    def take(self, max_rows: int, limit: float = -inf) -> list[Request]:
        """Take out who runs together next, as many as fit into `max_rows`.

        Args:
            max_rows: Rows at most; a request with more is taken alone.
            limit: Who is due before is passed over and stays.
        """
        taken: list[Request] = []
        room = max_rows
        levels = self.levels
        while True:
            level = levels[0] if len(levels) == 1 else self.top(limit)
            head = None if level is None else level.head(limit)
            if level is None or head is None:
                break
            rows = head.entry[2].rows
            if rows > room and taken:
                break
            room -= rows
            taken.append(level.pop(head))
        for level in levels:
            level.restore()
        self.rows -= max_rows - room
        self.num_requests -= len(taken)
        return taken

    def take_before(self, limit: float) -> list[Request]:
        """Take out every request that is due before `limit`."""
        gone: list[Request] = []
        for level in self.levels:
            for flow in level.flows:
                # Keys are never later than what is due, so that the search ends soon.
                for entry in flow.entries:
                    if entry[0] >= limit:
                        break
                    if entry[4] < limit:
                        gone.append(entry[2])
        for request in gone:
            self.remove(request)
        return gone

    def requests(self) -> list[Request]:
        """Return who waits, in no order."""
        return [request for level in self.levels for request in level.entries]

    def _open(self, rank: float) -> Level:
        level = self._by_rank[rank] = Level(rank * AGING_S, self._clock_of(rank))
        if self._is_shared:
            level.share()
        self.levels = [self._by_rank[rank] for rank in sorted(self._by_rank)]
        return level


def _urgency(level: Level) -> float:
    return level.since + level.rank_s
