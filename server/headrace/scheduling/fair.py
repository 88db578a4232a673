"""Whose turn it is: start-time fair queueing between the sources that share one priority level.

Each source has a tag, the virtual time at which its next request may start; who has the smallest
goes first, and what it takes moves its tag on (P. Goyal, H. Vin, H. Cheng: Start-time Fair
Queueing, SIGCOMM 1996). Over any time in which two sources both wait, what they were served differs
by no more than one request of each. Here the virtual time also moves on with the work that is done,
split among those that wait, as in fluid fair queueing: new sources that keep coming, with one
request each, do not hold up who was here before.

Rules
- Rows are the unit of service; a source of weight 2 is served twice as many as one of weight 1.
- A source that waits for nothing is forgotten once virtual time has passed its tag.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

Source = str | None  # None: those who do not say are one source

MAX_IDLE = (
    256  # tags kept of sources that wait for nothing: as many as are likely to return at once
)


class FairClock:
    """Virtual time, and the tag of each source that waits or was served lately."""

    __slots__ = ("_num_waiting", "_tags", "_weight_waiting", "_weights", "virtual_time")

    def __init__(self, weights: Mapping[Source, float] = MappingProxyType({})) -> None:
        """Start at zero; `weights` are 1 for who is not in it."""
        self.virtual_time = 0.0
        self._weights = weights
        self._tags: dict[Source, float] = {}
        self._num_waiting: dict[Source, int] = {}  # requests of each source that has any
        self._weight_waiting = 0.0  # of all these sources

    def __len__(self) -> int:
        """How many sources are remembered."""
        return len(self._tags)

    def weight(self, source: Source) -> float:
        """Return a source's share, against those of others."""
        return self._weights.get(source, 1.0)

    def tag(self, source: Source) -> float:
        """Return when a waiting source's next request may start, in virtual time."""
        return self._tags[source]

    def arrive(self, source: Source) -> None:
        """One more request of a source waits."""
        if source in self._num_waiting:
            self._num_waiting[source] += 1
        else:
            self._num_waiting[source] = 1
            self._weight_waiting += self._weights.get(source, 1.0)
            self._tags[source] = max(self._tags.get(source, 0.0), self.virtual_time)

    def serve(self, source: Source, rows: int) -> None:
        """One request of a source, of so many rows, is served."""
        tag = self._tags[source]
        share = rows / self._weight_waiting
        self.virtual_time = max(self.virtual_time + share, tag)
        self._tags[source] = tag + rows / self._weights.get(source, 1.0)
        self.leave(source)

    def leave(self, source: Source) -> None:
        """One request of a source waits no more."""
        num_waiting = self._num_waiting[source] - 1
        if num_waiting:
            self._num_waiting[source] = num_waiting
            return
        del self._num_waiting[source]
        self._weight_waiting -= self._weights.get(source, 1.0)
        if not self._num_waiting:  # nobody is ahead of anybody; tags never go back
            self.virtual_time = max(self.virtual_time, *self._tags.values())
            self._tags.clear()
            self._weight_waiting = 0.0  # what rounding has left
        elif self._tags[source] <= self.virtual_time:
            del self._tags[source]
        if len(self._tags) > len(self._num_waiting) + MAX_IDLE:
            self._forget()

    def _forget(self) -> None:
        """Drop tags that mean nothing any more; if those are few, half of the idle ones."""
        idle = [source for source in self._tags if source not in self._num_waiting]
        past = [source for source in idle if self._tags[source] <= self.virtual_time]
        for source in past if len(past) > MAX_IDLE // 2 else idle[: len(idle) // 2 + 1]:
            del self._tags[source]
