"""The queue's policy said in the plainest way: one list, searched anew for every decision.

For requests that are due at no time, where the policy leaves no freedom but between equals:
`agrees` holds an answer of the real batcher against the list, lets equals be either way, and
follows it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

from headrace.engines.base import Kind
from headrace.engines.batching_spec import BatchingSpec, QueuePolicy
from headrace.scheduling.request import Request

AGING_S = 1.0
PATIENCE_S = 10.0
LATE_STEP = 0.5
EQUAL = 1e-9  # virtual time is summed in another order here


@dataclass(eq=False)
class Entry:
    """A request that waits."""

    request: Request
    number: int
    source: str | None
    since: float
    level: float  # 0 for the most urgent; half a step more once it has timed out and is delayed
    key: float
    timeout_at: float

    @property
    def kind(self) -> Kind | None:
        """What it can share a batch with."""
        return self.request.layout.kind

    @property
    def rows(self) -> int:
        """Its rows."""
        return self.request.rows


@dataclass
class Fairness:
    """Start-time fair queueing of one level: virtual time, and when each source may start next."""

    time: float = 0.0
    tags: dict[str | None, float] = field(default_factory=dict)


class QueueOracle:
    """All requests that wait, in one list in order of arrival."""

    def __init__(self, spec: BatchingSpec, lead_s: float, max_queue_size: int) -> None:
        self.spec = spec
        self.lead_s = lead_s
        self.max_queue_size = max_queue_size
        self.entries: list[Entry] = []
        self._number = 0
        self._has_sources = False
        self._fairness: dict[float, Fairness] = {}

    # --- who is in --------------------------------------------------------------------------------

    def is_full(self, request: Request) -> bool:
        """Say whether there is no place for a newcomer."""
        return len(self.entries) >= self._places(request) and self._is_level_full(request)

    def displaced_by(self, request: Request) -> set[Request]:
        """Return who may have to make room: what would run last of a source with most rows."""
        level = self._level(request)
        lowest = level + LATE_STEP if self._is_level_full(request) else inf
        its = [entry for entry in self.entries if level <= entry.level <= lowest]
        rows: dict[str | None, int] = {}
        for entry in its:
            rows[entry.source] = rows.get(entry.source, 0) + entry.rows
        most = max(rows.values(), default=0)
        if not self._has_sources or most <= rows.get(request.source, 0) + request.rows:
            return set()

        def last_of(source: str | None) -> Request:
            own = [entry for entry in its if entry.source == source]
            return max(own, key=lambda each: (each.level, each.key, each.number)).request

        return {last_of(source) for source, count in rows.items() if count == most}

    def add(self, request: Request, now: float) -> list[Request]:
        """Queue a request; return the ones that it supersedes."""
        self._number += 1
        is_ordered = self.spec.preserve_ordering
        entry = Entry(
            request,
            self._number,
            source=None if is_ordered else request.source,
            since=now,
            level=self._level(request),
            key=0.0 if is_ordered else request.received_at + PATIENCE_S,
            timeout_at=now + self._wait_s(request),
        )
        older: list[Entry] = []
        if self.spec.keeps_latest and request.source is not None:
            older = [each for each in self.entries if each.request.source == request.source]
            entry.since = min([now, *(each.since for each in older)])
        self._has_sources |= entry.source is not None
        self._enter(entry)
        self._take(older)
        return [each.request for each in older]

    def remove(self, request: Request) -> bool:
        """Take a request out; say whether it was in."""
        found = [entry for entry in self.entries if entry.request is request]
        self._take(found)
        return bool(found)

    def time_out(self, now: float) -> list[Request]:
        """Return those that have waited too long; or put them behind, where that is the policy."""
        late = [entry for entry in self.entries if entry.timeout_at <= now]
        gone = [each for each in late if not self._policy(each.request).is_delayed]
        for entry in sorted(late, key=lambda each: (each.timeout_at, each.number)):
            self._take([entry])
            if entry not in gone:
                entry.level, entry.timeout_at, entry.since = entry.level + LATE_STEP, inf, now
                self._enter(entry)
        return [entry.request for entry in gone]

    # --- what should run --------------------------------------------------------------------------

    def ready_at(self, kind: Kind | None, start: float, now: float) -> float:
        """Return when the requests of this kind should run."""
        its = [entry for entry in self.entries if entry.kind is kind]
        rows = sum(entry.rows for entry in its)
        late = max(start - self.lead_s, now)
        if kind is None or rows >= min(self.spec.max_rows, kind.max_rows):
            return late if self._is_ranked else now
        is_filled = any(rows >= size for size in self.spec.preferred_rows)
        has_late = any(entry.level % 1 for entry in its)
        at = min(entry.since for entry in its) + self.spec.max_delay_s
        if is_filled or has_late:
            at = now
        return max(at, late) if start > now else at

    @property
    def _is_ranked(self) -> bool:
        """Whether a newcomer may go before one who waits: then nothing is bound too early."""
        has_order = not self.spec.preserve_ordering
        return has_order and (self._has_sources or self.spec.num_priorities > 1)

    def look_at(self, start: float, now: float) -> float:
        """Return when something will be ready, infinity for never."""
        kinds = {entry.kind for entry in self.entries}
        return min((self.ready_at(kind, start, now) for kind in kinds), default=inf)

    def agrees(self, batch: Sequence[Request] | None, start: float, now: float) -> None:
        """Hold an answer to be right, and take it out of the list.

        Raises:
            AssertionError: It is not what the policy says.
        """
        kinds = {entry.kind for entry in self.entries}
        ready = {kind for kind in kinds if self.ready_at(kind, start, now) <= now}
        if batch is None:
            assert not ready, f"{len(self.entries)} wait and something is ready"
            return
        kind = batch[0].layout.kind
        assert all(request.layout.kind is kind for request in batch), "kinds are mixed"
        assert kind in ready, "this kind is not ready"
        assert len(batch) == 1 or kind is not None, "what runs alone has company"
        room = self._room(kind, now)
        for place, request in enumerate(batch):
            (entry,) = [each for each in self.entries if each.request is request]
            of_kinds = ready if place == 0 else {kind}
            assert self._could_be_next(entry, of_kinds), "another one should have gone first"
            room -= entry.rows
            assert room >= 0 or place == 0, "more rows than a batch may have"
            self._serve(entry)
        left = [entry for entry in self.entries if entry.kind is kind]
        if kind is not None and left and room > 0:
            nexts = [each for each in left if self._could_be_next(each, {kind})]
            assert any(each.rows > room for each in nexts), "there was room for the next one"

    def _room(self, kind: Kind | None, now: float) -> int:
        its = [entry for entry in self.entries if entry.kind is kind]
        rows = sum(entry.rows for entry in its)
        if kind is None:
            return 0
        most = min(self.spec.max_rows, kind.max_rows)
        if rows >= most or now >= min(each.since for each in its) + self.spec.max_delay_s:
            return most
        return max((size for size in self.spec.preferred_rows if size <= rows), default=most)

    def _could_be_next(self, entry: Entry, kinds: set[Kind | None]) -> bool:
        """Say whether nothing of these kinds goes before it: no level, no source, no older one."""
        of_kinds = [each for each in self.entries if each.kind in kinds]
        urgencies = {each.level: self._urgency(each.level, of_kinds) for each in of_kinds}
        if urgencies[entry.level] > min(urgencies.values()) + EQUAL:
            return False
        tags = self._fairness[entry.level].tags
        rivals = [each for each in of_kinds if each.level == entry.level]
        least = min(tags[each.source] for each in rivals)
        if tags[entry.source] > least + EQUAL:
            return False
        rivals = [each for each in rivals if tags[each.source] <= least + EQUAL]
        own = [each for each in rivals if each.source == entry.source]
        if len(own) < len(rivals):  # sources are even: each kind may be at another one
            own = [each for each in own if each.kind is entry.kind]
        return (entry.key, entry.number) == min((each.key, each.number) for each in own)

    def _urgency(self, level: float, among: Sequence[Entry]) -> float:
        """Return when the oldest of a level came, less urgent levels counting later."""
        return min(each.since for each in among if each.level == level) + level * AGING_S

    # --- whose turn it is -------------------------------------------------------------------------

    def _enter(self, entry: Entry) -> None:
        fair = self._fairness.setdefault(entry.level, Fairness())
        if entry.source not in {each.source for each in self._at(entry.level)}:
            fair.tags[entry.source] = max(fair.tags.get(entry.source, 0.0), fair.time)
        self.entries.append(entry)

    def _serve(self, entry: Entry) -> None:
        """Count it as its source's share."""
        fair = self._fairness[entry.level]
        num_sources = len({each.source for each in self._at(entry.level)})
        fair.time = max(fair.time + entry.rows / num_sources, fair.tags[entry.source])
        fair.tags[entry.source] += entry.rows
        self._take([entry])

    def _take(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            self.entries.remove(entry)
            if not self._at(entry.level):
                self._fairness[entry.level].tags.clear()  # nobody waits: nobody is ahead

    def _at(self, level: float) -> list[Entry]:
        return [entry for entry in self.entries if entry.level == level]

    # --- what the configuration says --------------------------------------------------------------

    def _level(self, request: Request) -> float:
        if self.spec.num_priorities == 1:
            return 0.0
        return (request.priority or self.spec.default_priority) - 1.0

    def _policy(self, request: Request) -> QueuePolicy:
        return self.spec.policy(request.priority or self.spec.default_priority)

    def _places(self, request: Request) -> int:
        return self._policy(request).max_queue_size or self.max_queue_size

    def _is_level_full(self, request: Request) -> bool:
        level = self._level(request)
        waiting = [entry for entry in self.entries if level <= entry.level < level + 1]
        return len(waiting) >= self._places(request)

    def _wait_s(self, request: Request) -> float:
        """Return how long it may wait."""
        policy = self._policy(request)
        wait_s: float = policy.default_timeout_s or inf
        if policy.may_override and request.timeout_s:
            wait_s = min(wait_s, request.timeout_s)
        return wait_s
