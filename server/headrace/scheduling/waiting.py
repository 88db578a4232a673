"""The requests of one kind that wait, in the order in which they should run.

Order: the priority level, a lower level counting as less urgent by `AGING_S` for each step; inside
a level the source whose turn it is (`fair.py`); inside a source who is due first, then who came
first.

Rules
- Pure bookkeeping: who waits and in which order. When and how many run is decided elsewhere.
- Removal is exact, by search in sorted lists: nothing of a request stays behind when it has left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf

from headrace.scheduling.fair import FairClock
from headrace.scheduling.flow import Entry
from headrace.scheduling.level import Level
from headrace.scheduling.request import Request

AGING_S = 1.0  # what one step of priority is worth: it bounds the wait of the lower levels
LATE_STEP = 0.5  # what has timed out in a level stands so many steps behind it


class Waiting:
    """Waiting requests of one kind."""

    __slots__ = ("_clock_of", "_is_shared", "by_rank", "levels", "num_requests", "rows")

    def __init__(self, clock_of: Callable[[float], FairClock], *, is_shared: bool) -> None:
        """Start empty.

        Args:
            clock_of: Gives the clock of a rank: levels of other kinds have the same ones.
            is_shared: Whether there are sources that take turns.
        """
        self.rows = 0
        self.num_requests = 0
        self.levels: list[Level] = []  # by rank
        self.by_rank: dict[float, Level] = {}
        self._clock_of = clock_of
        self._is_shared = is_shared

    @property
    def since(self) -> float:
        """When the oldest began to wait; infinity when none waits."""
        if len(self.levels) == 1:
            return self.levels[0].since
        return min((level.since for level in self.levels), default=inf)

    @property
    def first_due(self) -> float:
        """The least key: nobody is due before; infinity when nobody waits."""
        if len(self.levels) == 1 and (only := self.levels[0].only) is not None:
            return only.entries[0][0] if only.entries else inf
        return min(
            (flow.entries[0][0] for each in self.levels for flow in each.flows if flow.entries),
            default=inf,
        )

    @property
    def has_late(self) -> bool:
        """Whether any has timed out and waits on behind the others."""
        return len(self.levels) > 1 and any(
            level.entries and level.rank % 1 for level in self.levels
        )

    def share(self) -> None:
        """Let sources take turns from now on."""
        self._is_shared = True
        for level in self.levels:
            level.share()

    def add(self, entry: Entry, rank: float) -> None:
        """Queue a request; rank 0 is the most urgent."""
        level = self.by_rank.get(rank)
        if level is None:
            level = self._open(rank)
        level.add(entry)
        self.rows += entry[2].rows
        self.num_requests += 1

    def find(self, request: Request) -> tuple[Entry, float] | None:
        """Return a request's entry and its rank; None when it is not in."""
        for level in self.levels:
            entry = level.entries.get(request)
            if entry is not None:
                return entry, level.rank
        return None

    def remove(self, request: Request) -> bool:
        """Take a request out; False when it is not in."""
        for level in self.levels:
            if level.remove(request):
                self.rows -= request.rows
                self.num_requests -= 1
                return True
        return False

    def take(self, max_rows: int, limit: float = -inf, first: Level | None = None) -> list[Request]:
        """Take out who runs together next, as many as fit into `max_rows`.

        Args:
            max_rows: Rows at most; a request with more is taken alone.
            limit: Who is due before is passed over and stays.
            first: The level that the first of them is of; by default the one whose turn it is.
        """
        levels = self.levels
        if len(levels) == 1 and limit == -inf:
            only = levels[0].only
            if only is None:
                taken = levels[0].take_turns(max_rows)
            else:
                taken = levels[0].take_front(only, max_rows)
        else:
            taken = self._take_in_turn(max_rows, limit, first)
        if len(taken) == 1:
            self.rows -= taken[0].rows
        else:
            self.rows -= sum([request.rows for request in taken])
        self.num_requests -= len(taken)
        return taken

    def due_before(self, limit: float) -> list[tuple[float, int]]:
        """Return (due, rows) of every request that is due by `limit`, the first due first."""
        found = [(entry[4], entry[2].rows) for entry in self._before(limit)]
        found.sort()
        return found

    def take_before(self, limit: float) -> list[Request]:
        """Take out every request that is due by `limit`."""
        gone = [entry[2] for entry in self._before(limit)]
        for request in gone:
            self.remove(request)
        return gone

    def requests(self) -> list[Request]:
        """Return who waits, in no order."""
        return [request for level in self.levels for request in level.entries]

    def _take_in_turn(self, max_rows: int, limit: float, first: Level | None) -> list[Request]:
        taken: list[Request] = []
        room, levels = max_rows, self.levels
        only = levels[0] if len(levels) == 1 else None
        if first is not None and first.head(limit) is None:
            first = None  # whoever is of it is passed over
        while True:
            level = only or first or self._top(limit)
            first = None
            head = None if level is None else level.head(limit)
            if level is None or head is None:
                break
            room -= head.entry[2].rows
            if room < 0 and taken:
                break
            taken.append(level.pop(head))
        for level in levels:
            level.restore()
        return taken

    def _top(self, limit: float) -> Level | None:
        """Return the level whose turn it is, of those with a request due at `limit` or later."""
        levels = [level for level in self.levels if level.entries]
        if limit > -inf:
            levels = [level for level in levels if level.head(limit) is not None]
        return min(levels, key=urgency, default=None)

    def _before(self, limit: float) -> Iterator[Entry]:
        for level in self.levels:
            for flow in level.flows:
                for entry in flow.entries:
                    if entry[0] > limit:
                        break  # keys are never later than what is due
                    if entry[4] <= limit:
                        yield entry

    def _open(self, rank: float) -> Level:
        level = self.by_rank[rank] = Level(rank, self._clock_of(rank))
        if self._is_shared:
            level.share()
        self.levels = [self.by_rank[rank] for rank in sorted(self.by_rank)]
        return level


def urgency(level: Level) -> float:
    """Return since when a level counts as waiting: the least goes first."""
    return level.since + level.rank * AGING_S
