"""All that waits for a model, by kind; priority levels and sources are common to the kinds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from types import MappingProxyType

from headrace.engines.base import Kind
from headrace.scheduling.fair import FairClock, Source
from headrace.scheduling.flow import Entry
from headrace.scheduling.level import Level
from headrace.scheduling.request import Request
from headrace.scheduling.waiting import AGING_S, Waiting

MAX_SPARE = 4  # kinds that ran empty are kept for the next ones: opening one costs microseconds


class Kinds:
    """Who waits for one model.

    Attributes:
        by_kind: Kinds that have requests; who was served last stands last. A kind that is alone
            stays when it has none, for its next request.
        num_requests: In all; they have `rows`.
        num_deadlines: How many of them have one.
        is_shared: A source with a name has been seen, and sources take turns.
    """

    def __init__(self, weights: Mapping[Source, float] = MappingProxyType({})) -> None:
        """Start empty; `weights` of sources are 1 for who is not in it."""
        self._weights = weights
        self.by_kind: dict[Kind | None, Waiting] = {}
        self.num_requests = 0
        self.rows = 0
        self.num_deadlines = 0
        self.is_shared = False
        self._spare: list[Waiting] = []
        self._clocks: dict[float, FairClock] = {}

    def add(self, entry: Entry, rank: float) -> None:
        """Queue a request; rank 0 is the most urgent."""
        request = entry[2]
        kind = request.layout.kind
        waiting = self.by_kind.get(kind)
        if waiting is None:
            waiting = self.by_kind[kind] = self._open()
        waiting.add(entry, rank)
        self.num_requests += 1
        self.rows += request.rows
        if request.deadline is not None:
            self.num_deadlines += 1

    def find(self, request: Request) -> tuple[Entry, float] | None:
        """Return a request's entry and its rank; None when it does not wait."""
        waiting = self.by_kind.get(request.layout.kind)
        return None if waiting is None else waiting.find(request)

    def remove(self, request: Request) -> bool:
        """Take a request out; False when it does not wait."""
        kind = request.layout.kind
        waiting = self.by_kind.get(kind)
        if waiting is None or not waiting.remove(request):
            return False
        self._left(kind, waiting, (request,))
        return True

    def clear(self) -> list[Request]:
        """Take everything out."""
        requests = [each for waiting in self.by_kind.values() for each in waiting.requests()]
        for request in requests:
            self.remove(request)
        return requests

    def take(
        self, kind: Kind | None, max_rows: int, limit: float = -inf, first: Level | None = None
    ) -> list[Request]:
        """Take out who of a kind runs together next; see `Waiting.take`."""
        waiting = self.by_kind[kind]
        taken = waiting.take(max_rows, limit, first)
        self._left(kind, waiting, taken)
        return taken

    def take_before(self, kind: Kind | None, limit: float) -> list[Request]:
        """Take out every request of a kind that is due by `limit`."""
        waiting = self.by_kind[kind]
        gone = waiting.take_before(limit)
        if gone:
            self._left(kind, waiting, gone)
        return gone

    def first(self, kinds: Sequence[Kind | None]) -> tuple[Kind | None, Level | None]:
        """Return which of these kinds comes first in the order of all, and by which level.

        The most urgent level first; of the kinds that have requests of it, the one whose source's
        turn it is.
        """
        if len(kinds) == 1:
            return kinds[0], None
        since: dict[float, float] = {}
        for kind in kinds:
            for level in self.by_kind[kind].levels:
                since[level.rank] = min(since.get(level.rank, inf), level.since)
        rank = min(since, key=lambda rank: (since[rank] + rank * AGING_S, rank))
        best: tuple[Kind | None, Level | None] = (None, None)
        best_standing = (inf, inf, inf)
        for kind in kinds:
            its = self.by_kind[kind].by_rank.get(rank)
            head = None if its is None else its.head()
            if head is not None and (standing := (head.tag, *head.entry[:2])) < best_standing:
                best, best_standing = (kind, its), standing
        return best

    def num_at(self, rank: float) -> int:
        """Return how many wait at a level, those that have timed out included."""
        return sum(len(level.entries) for level in self._levels() if rank <= level.rank < rank + 1)

    def rows_ahead(self, request: Request, rank: float, key: float) -> float:
        """Return how many rows are likely to run before a newcomer."""
        rows = 0.0
        for waiting in self.by_kind.values():
            num_ahead = 0
            for level in waiting.levels:
                if level.rank < rank:
                    num_ahead += len(level.entries)
                elif level.rank == rank:
                    num_ahead += level.num_ahead(request.source, key)
            rows += num_ahead * waiting.rows / (waiting.num_requests or 1)
        return rows

    def displaced_by(self, request: Request, lowest: float, highest: float) -> Request | None:
        """Return who must make room for a newcomer, by longest queue drop.

        The source with the most rows for its weight gives up what would run last of its requests,
        if it has more than the newcomer's would have with it (B. Suter et al., INFOCOM 1998).

        Args:
            request: The newcomer.
            lowest: The least rank that is looked at.
            highest: The largest.
        """
        if not self.is_shared:
            return None
        rows: dict[Source, float] = {}
        last: dict[Source, tuple[float, Entry]] = {}
        for level in self._levels():
            if not lowest <= level.rank <= highest:
                continue
            for flow in level.flows:
                source, entry = flow.source, flow.entries[-1]
                rows[source] = rows.get(source, 0.0) + flow.rows / self._weight(source)
                last[source] = max(last.get(source, (-inf, entry)), (level.rank, entry))
        longest = max(rows, key=rows.__getitem__, default=None)
        its = request.rows / self._weight(request.source)
        if rows.get(longest, 0.0) <= rows.get(request.source, 0.0) + its:
            return None
        return last[longest][1][2]

    def share(self) -> None:
        """Let sources take turns from now on."""
        self.is_shared = True
        for waiting in (*self.by_kind.values(), *self._spare):
            waiting.share()

    def _weight(self, source: Source) -> float:
        return self._weights.get(source, 1.0)

    def _levels(self) -> Iterable[Level]:
        return (level for waiting in self.by_kind.values() for level in waiting.levels)

    def _left(self, kind: Kind | None, waiting: Waiting, requests: Sequence[Request]) -> None:
        """Note that requests of a kind are in no more."""
        self.num_requests -= len(requests)
        for request in requests:
            self.rows -= request.rows
        if self.num_deadlines:
            self.num_deadlines -= sum([request.deadline is not None for request in requests])
        if len(self.by_kind) > 1:
            del self.by_kind[kind]
            if waiting.num_requests:
                self.by_kind[kind] = waiting  # behind the others
            elif len(self._spare) < MAX_SPARE:
                self._spare.append(waiting)

    def _open(self) -> Waiting:
        if not self.num_requests:  # the one that is left is of another kind
            self._spare.extend(self.by_kind.values())
            self.by_kind.clear()
        if self._spare:
            return self._spare.pop()
        return Waiting(self._clock, is_shared=self.is_shared)

    def _clock(self, rank: float) -> FairClock:
        clock = self._clocks.get(rank)
        if clock is None:
            clock = self._clocks[rank] = FairClock(self._weights)
        return clock
