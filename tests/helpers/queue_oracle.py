"""The queue's policy said in the plainest way: one list, searched anew for every decision.

For requests without deadlines, where the policy leaves no freedom but between equals: `agrees`
holds an answer of the real batcher against the list, lets equals be either way, and follows it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf

from headrace.engines.base import Kind
from headrace.engines.batching_spec import BatchingSpec, QueuePolicy
from headrace.scheduling.request import Request

AGING_S = 1.0
LATE_STEP = 0.5
EQUAL = 1e-9  # virtual time is summed in another order here


@dataclass(eq=False)
class Entry:
    """A request that waits."""

    request: Request
    number: int
    since: float
    level: float  # 0 for the most urgent; half a step more once it has timed out and is delayed
    timeout_at: float = inf

    @property
    def kind(self) -> Kind | None:
        """What it can share a batch with."""
        return self.request.layout.kind

    @property
    def key(self) -> tuple[float, int]:
        """Its place among those of its source."""
        return self.request.received_at, self.number


@dataclass
class Fairness:
    """Start-time fair queueing of one level: virtual time, and when each source may start next."""

    time: float = 0.0
    tags: dict[str | None, float] = field(default_factory=dict)


class QueueOracle:
    """All requests that wait, in one list in order of arrival."""

    def __init__(self, spec: BatchingSpec, lead_s: float) -> None:
        self.spec = spec
        self.lead_s = lead_s
        self.entries: list[Entry] = []
        self._number = 0
        self._fairness: dict[float, Fairness] = {}

    # --- what happens -----------------------------------------------------------------------------

    def add(self, request: Request, now: float) -> list[Request]:
        """Queue a request; return the ones that it supersedes."""
        self._number += 1
        entry = Entry(request, self._number, now, self._level(request), now + self._wait_s(request))
        older: list[Entry] = []
        if self.spec.keeps_latest and request.source is not None:
            older = [each for each in self.entries if each.request.source == request.source]
            entry.since = min([entry.since, *(each.since for each in older)])
            self._take(older)
        self._arrive(entry)
        self.entries.append(entry)
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
        for entry in late:
            if entry not in gone:
                self._take([entry])
                entry.level, entry.timeout_at = entry.level + LATE_STEP, inf
                self._arrive(entry)
                self.entries.append(entry)
        self._take(gone)
        return [entry.request for entry in gone]

    def displaced_by(self, request: Request) -> set[Request]:
        """Return who may be made to give way: the newest of a source that has the most rows."""
        rows: dict[str | None, int] = {}
        newest: dict[str | None, Request] = {}
        for entry in sorted(self.entries, key=lambda each: each.number):
            source = entry.request.source
            rows[source] = rows.get(source, 0) + entry.request.rows
            newest[source] = entry.request
        most = max(rows.values(), default=0)
        if most <= rows.get(request.source, 0) + request.rows:
            return set()
        return {newest[source] for source, its in rows.items() if its == most}

    # --- what should run --------------------------------------------------------------------------

    def ready_at(self, kind: Kind | None, start: float, now: float) -> float:
        """Return when the requests of this kind should run."""
        its = [entry for entry in self.entries if entry.kind is kind]
        rows = sum(entry.request.rows for entry in its)
        spec = self.spec
        if kind is None or rows >= spec.max_rows:
            return now
        is_filled = any(rows >= size for size in spec.preferred_rows)
        at = now if is_filled else min(entry.since for entry in its) + spec.max_delay_s
        return max(at, start - self.lead_s) if start > now else at

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
            of_kinds = ready if place == 0 else {kind}
            entry = self._is_next(request, of_kinds)
            room -= request.rows
            assert room >= 0 or place == 0, "more rows than a batch may have"
            self._serve(entry)
        left = [entry for entry in self.entries if entry.kind is kind]
        if kind is not None and left:
            nexts = [each for each in left if self._could_be_next(each, {kind})]
            assert any(each.request.rows > room for each in nexts), (
                "there was room for the next one"
            )

    def _room(self, kind: Kind | None, now: float) -> int:
        spec = self.spec
        its = [entry for entry in self.entries if entry.kind is kind]
        rows = sum(entry.request.rows for entry in its)
        if kind is None:
            return its[0].request.rows
        if rows >= spec.max_rows or now >= min(each.since for each in its) + spec.max_delay_s:
            return spec.max_rows
        return max((size for size in spec.preferred_rows if size <= rows), default=spec.max_rows)

    def _is_next(self, request: Request, kinds: set[Kind | None]) -> Entry:
        (entry,) = [each for each in self.entries if each.request is request]
        assert self._could_be_next(entry, kinds), "another one should have gone first"
        return entry

    def _could_be_next(self, entry: Entry, kinds: set[Kind | None]) -> bool:
        """Say whether nothing of these kinds goes before it in each step of the order."""
        of_kinds = [each for each in self.entries if each.kind in kinds]
        steps: tuple[Callable[[Entry], float], ...] = (
            lambda each: self._urgency(each, of_kinds),
            lambda each: each.level,
            self._tag,
        )
        rivals = of_kinds
        for step in steps:
            least = min(map(step, rivals))
            if step(entry) > least + EQUAL:
                return False
            rivals = [each for each in rivals if step(each) <= least + EQUAL]
        same = [each for each in rivals if each.request.source == entry.request.source]
        return entry.key == min(each.key for each in same if each.kind is entry.kind)

    def _urgency(self, entry: Entry, among: Sequence[Entry]) -> float:
        """Return when the oldest of its level came, less urgent levels counting later."""
        its = [e.since for e in among if e.level == entry.level]
        return min(its) + entry.level * AGING_S

    # --- whose turn it is -------------------------------------------------------------------------

    def _tag(self, entry: Entry) -> float:
        return self._fairness[entry.level].tags[entry.request.source]

    def _arrive(self, entry: Entry) -> None:
        fair = self._fairness.setdefault(entry.level, Fairness())
        if not self._num_waiting(entry):
            source = entry.request.source
            fair.tags[source] = max(fair.tags.get(source, 0.0), fair.time)

    def _serve(self, entry: Entry) -> None:
        """Count it as its source's share."""
        fair, source, rows = self._fairness[entry.level], entry.request.source, entry.request.rows
        sources = {each.request.source for each in self.entries if each.level == entry.level}
        fair.time = max(fair.time + rows / len(sources), fair.tags[source])
        fair.tags[source] += rows
        self._take([entry])

    def _take(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            self.entries.remove(entry)
            if not any(each.level == entry.level for each in self.entries):
                self._fairness[entry.level].tags.clear()  # nobody waits: nobody is ahead

    def _num_waiting(self, entry: Entry) -> int:
        source = entry.request.source
        return sum(e.level == entry.level and e.request.source == source for e in self.entries)

    # --- what the configuration says --------------------------------------------------------------

    def _level(self, request: Request) -> float:
        if self.spec.num_priorities == 1:
            return 0.0
        return (request.priority or self.spec.default_priority) - 1.0

    def _policy(self, request: Request) -> QueuePolicy:
        return self.spec.policy(request.priority or self.spec.default_priority)

    def _wait_s(self, request: Request) -> float:
        """Return how long it may wait."""
        policy = self._policy(request)
        wait_s: float = policy.default_timeout_s or inf
        if policy.may_override and request.timeout_s:
            wait_s = min(wait_s, request.timeout_s)
        return wait_s
