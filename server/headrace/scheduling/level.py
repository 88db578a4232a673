"""One priority level of one kind: its sources in turn, each with its requests by what is due first.

Until a source with a name has come there is one flow and nothing to take turns. From then on the
flows stand in a heap by their sources' tags. Tags only grow while a source waits, so a turn that
has been overtaken is found at the top and put right there.
"""

from __future__ import annotations

from bisect import insort
from collections import OrderedDict
from heapq import heapify, heappop, heappush, heapreplace
from math import inf
from typing import NamedTuple

from headrace.scheduling.ages import Ages
from headrace.scheduling.fair import FairClock, Source
from headrace.scheduling.flow import Entry, Flow
from headrace.scheduling.request import Request

SPARE_TURNS = 16  # turns of flows that ran dry, before they are cleared away all at once


class Head(NamedTuple):
    """Who would run next, and where it stands."""

    tag: float  # virtual time; 0.0 where there is one source only
    flow: Flow
    place: int  # in the flow

    @property
    def entry(self) -> Entry:
        """The request's entry."""
        return self.flow.entries[self.place]


class Level:
    """Waiting requests of one kind and priority level."""

    __slots__ = (
        "_ages",
        "_aside",
        "_clock",
        "_flows",
        "_last_since",
        "_num_turns",
        "_turns",
        "entries",
        "only",
        "rank",
    )

    def __init__(self, rank: float, clock: FairClock) -> None:
        """Start empty.

        Args:
            rank: 0 for the most urgent; half steps hold what has timed out.
            clock: The level's, shared by the kinds.
        """
        self.rank = rank
        self.entries: OrderedDict[Request, Entry] = OrderedDict()  # by arrival
        self.only: Flow | None = Flow(None)  # the one flow, until there are sources
        self._clock = clock
        self._flows: dict[Source, Flow] = {None: self.only}
        self._turns: list[tuple[float, int, Flow]] = []  # (tag, number of the turn, whose)
        self._num_turns = 0
        self._aside: list[tuple[float, int, Flow]] = []
        self._last_since = -inf
        self._ages: Ages | None = None  # where some count from the time of those they replaced

    @property
    def since(self) -> float:
        """When the oldest began to wait; infinity when none waits."""
        if self._ages is not None:
            return self._ages.since()
        for entry in self.entries.values():
            return entry[3]
        return inf

    @property
    def flows(self) -> list[Flow]:
        """The flows that hold requests, in no order."""
        if self.only is not None:
            return [self.only]
        return [flow for flow in self._flows.values() if flow.entries]

    def share(self) -> None:
        """Let sources take turns from now on."""
        if self.only is not None:
            flow, self.only = self.only, None
            flow.rows = sum([entry[2].rows for entry in flow.entries])
            for _ in flow.entries:
                self._clock.arrive(None)
            if flow.entries:
                self._list(flow)

    def add(self, entry: Entry) -> None:
        """Queue a request."""
        request, since = entry[2], entry[3]
        self.entries[request] = entry
        if since < self._last_since or self._ages is not None:
            self._age(entry)
        else:
            self._last_since = since
        only = self.only
        if only is not None:
            entries = only.entries
            if entries and entries[-1] > entry:
                insort(entries, entry)
            else:
                entries.append(entry)
            return
        source = request.source
        flow = self._flows.get(source)
        if flow is None:
            flow = self._flows[source] = Flow(source)
        flow.add(entry)
        self._clock.arrive(source)
        if not flow.is_listed:
            self._list(flow)

    def remove(self, request: Request) -> bool:
        """Take a request out; False when it is not in."""
        entry = self.entries.pop(request, None)
        if entry is None:
            return False
        if self.only is not None:
            self.only.remove(entry)
        else:
            self._flows[request.source].remove(entry)
            self._clock.leave(request.source)
        return True

    def head(self, limit: float = -inf) -> Head | None:
        """Return who runs next of those that are due at `limit` or later.

        Flows that have none such are put aside, out of the way of the next call, until `restore`.
        """
        if self.only is not None:
            place = 0 if limit == -inf else self.only.first_due(limit)
            return Head(0.0, self.only, place) if place < len(self.only.entries) else None
        turns = self._turns
        while turns:
            tag, number, flow = turns[0]
            if not flow.entries:
                heappop(turns)
                flow.is_listed = False
                del self._flows[flow.source]
            elif tag < (due_tag := self._clock.tag(flow.source)):
                heapreplace(turns, (due_tag, number, flow))
            elif limit == -inf:
                return Head(tag, flow, 0)
            elif (place := flow.first_due(limit)) < len(flow.entries):
                return Head(tag, flow, place)
            else:
                self._aside.append(heappop(turns))
        return None

    def pop(self, head: Head) -> Request:
        """Take out who runs next, and count it as its source's share."""
        request = head.flow.pop(head.place)
        del self.entries[request]
        if self.only is None:
            self._clock.serve(request.source, request.rows)
        return request

    def take_front(self, flow: Flow, max_rows: int) -> list[Request]:
        """Take out those in front of the only flow, as many as fit; the first in any case."""
        taken: list[Request] = []
        entries, rows = flow.entries, 0
        for entry in entries:
            request = entry[2]
            if rows + request.rows > max_rows and rows:
                break
            rows += request.rows
            taken.append(request)
            del self.entries[request]
        del entries[: len(taken)]
        return taken

    def take_turns(self, max_rows: int) -> list[Request]:
        """Take out who runs next, source by source, as many as fit; the first in any case.

        The same as `head` and `pop` one after the other, for less: it is how nearly every batch of
        many sources is made.
        """
        taken: list[Request] = []
        turns, clock, rows = self._turns, self._clock, 0
        while turns and (rows < max_rows or not taken):
            tag, number, flow = turns[0]
            entries, source = flow.entries, flow.source
            if not entries:
                heappop(turns)
                flow.is_listed = False
                del self._flows[source]
            elif tag < (due_tag := clock.tag(source)):
                heapreplace(turns, (due_tag, number, flow))
            else:
                request = entries[0][2]
                if rows + request.rows > max_rows and taken:
                    break
                rows += request.rows
                taken.append(flow.pop(0))
                del self.entries[request]
                clock.serve(source, request.rows)
        return taken

    def restore(self) -> None:
        """Bring back the flows that `head` put aside."""
        while self._aside:
            heappush(self._turns, self._aside.pop())

    def num_ahead(self, source: Source, key: float) -> int:
        """Return how many requests are likely to run before a newcomer."""
        if self.only is not None:
            return self.only.num_before(key)
        flow = self._flows.get(source)
        its = 0 if flow is None else flow.num_before(key)
        of_each_other = (its + 1) / self._clock.weight(source)
        others = of_each_other * (len(self._turns) - 1)
        return min(int(its + 1 + others), len(self.entries))

    def _age(self, entry: Entry) -> None:
        """Take in an entry that may count from before others' time; alone it is the oldest."""
        if len(self.entries) == 1:
            self._ages, self._last_since = None, entry[3]
        elif self._ages is None:
            self._ages = Ages(self.entries)
        else:
            self._ages.add(entry)

    def _list(self, flow: Flow) -> None:
        flow.is_listed = True
        self._num_turns += 1
        heappush(self._turns, (self._clock.tag(flow.source), self._num_turns, flow))
        if len(self._turns) > 2 * len(self.entries) + SPARE_TURNS:
            self._sweep()

    def _sweep(self) -> None:
        """Clear away flows that ran dry and whose turn did not come since."""
        for _, _, flow in self._turns:
            if not flow.entries:
                del self._flows[flow.source]
                flow.is_listed = False
        self._turns = [turn for turn in self._turns if turn[2].is_listed]
        heapify(self._turns)
