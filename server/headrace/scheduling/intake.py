"""Who may wait for a model, and who may no more: bounds, deadlines, timeouts, fresher requests."""

from __future__ import annotations

from math import inf

from headrace.engines.base import Kind
from headrace.engines.batching_spec import BatchingSpec
from headrace.errors import OverloadedError, SupersededError
from headrace.escape import printable
from headrace.scheduling.batcher import EXPIRED, Drop, Helps, anyway
from headrace.scheduling.flow import Entry
from headrace.scheduling.kinds import Kinds
from headrace.scheduling.outlook import Outlook
from headrace.scheduling.request import Request
from headrace.scheduling.standing import Standing
from headrace.scheduling.timeouts import TIMED_OUT, Timeouts, wait_s
from headrace.scheduling.waiting import LATE_STEP

SPARE = 64  # sources whose last request has left, before they are cleared away all at once
MISSED = OverloadedError("the model's latency target can not be met any more")
DISPLACED = OverloadedError("Exceeds maximum queue size: its source had most of what waits")


class Intake:
    """Lets requests into a model's queue, and takes out those that wait in vain.

    Attributes:
        kinds: Who waits.
        dropped: Who was taken out; the batcher's caller ends them.
        least_queue_size: With fewer than so many that wait, no priority's share is full.
        has_timeouts: Whether any may wait for some time only.
    """

    def __init__(self, spec: BatchingSpec, default_max_queue_size: int) -> None:
        """Start empty.

        Args:
            spec: What the model's configuration says.
            default_max_queue_size: Requests of a priority that may wait, where `spec` does not say.
        """
        self.kinds = Kinds(spec.source_weights)
        self.dropped: list[Drop] = []
        self._standing = Standing(spec, default_max_queue_size)
        self.least_queue_size = self._standing.least_queue_size
        self.has_timeouts = self._standing.has_timeouts
        self._has_target = spec.target_p99_s > 0.0
        self._keeps_latest = spec.keeps_latest
        self._is_ordered = spec.preserve_ordering
        self._latest: dict[str, Request] = {}  # of each source, where only that matters
        self._timeouts = Timeouts(self.kinds.find)
        self._number = 0

    @property
    def is_pressed(self) -> bool:
        """Whether any that wait are due at some time."""
        return self._has_target or self.kinds.num_deadlines > 0

    @property
    def is_ranked(self) -> bool:
        """Whether a newcomer may go before one that waits: by its level, source or deadline."""
        kinds = self.kinds
        if self._is_ordered:
            return False
        return kinds.is_shared or self._standing.has_priorities or kinds.num_deadlines > 0

    def full(self, request: Request) -> Drop | None:
        """Say why a newcomer finds no place; None when there is one."""
        kinds, standing = self.kinds, self._standing
        most = standing.max_queue_size(request)
        if kinds.num_at(standing.rank(request)) < most:
            return None
        error = f"Exceeds maximum queue size: {most} requests of its priority wait"
        return Drop(request, OverloadedError(error), "queue_full")

    def late(self, request: Request, start: float, outlook: Outlook, now: float) -> Drop | None:
        """Say why a newcomer would wait in vain, if the next batch begins at `start`."""
        kinds, standing, rows = self.kinds, self._standing, request.rows
        due = standing.due(request)
        if outlook.done_at(start, kinds.rows, rows, now) <= due:
            return None  # whoever goes first
        ahead = kinds.rows_ahead(request, standing.rank(request), standing.key(request, due))
        if outlook.done_at(start, ahead, rows, now) <= due:
            return None
        return _too_late(request, due, now)

    def displace(self, request: Request, helps: Helps = anyway) -> Drop | None:
        """Take out what makes room for a newcomer, of its own level or of less urgent ones."""
        rank = self._standing.rank(request)
        is_level_full = self.kinds.num_at(rank) >= self._standing.max_queue_size(request)
        victim = self.kinds.displaced_by(request, rank, rank + LATE_STEP if is_level_full else inf)
        if victim is None or not helps(victim):
            return None
        self.kinds.remove(victim)
        return Drop(victim, DISPLACED, "displaced")

    def add(self, request: Request, now: float) -> None:
        """Queue a request; what it supersedes is dropped."""
        kinds, standing, source = self.kinds, self._standing, request.source
        if source is not None and not (kinds.is_shared or self._is_ordered):
            kinds.share()
        self._number += 1
        entry = standing.entry(request, self._number, now)
        rank = standing.rank(request) if standing.has_priorities else 0.0
        if self._keeps_latest and source is not None:
            self._supersede(entry, rank, source)
        else:
            kinds.add(entry, rank)
        if self.has_timeouts and (timeout_s := wait_s(standing.policy(request), request)):
            self._timeouts.add(now + timeout_s, self._number, request)

    def time_out(self, now: float) -> None:
        """Take out who has waited for too long, or put it behind the others of its level."""
        for request in self._timeouts.due(now):
            if self._standing.policy(request).is_delayed:
                found = self.kinds.find(request)
                assert found is not None
                (key, number, _, _, due), rank = found
                self.kinds.remove(request)
                self.kinds.add((key, number, request, now, due), rank + LATE_STEP)
            else:
                self.kinds.remove(request)
                self.dropped.append(Drop(request, TIMED_OUT, "timeout"))

    def give_up(self, kind: Kind | None, soonest: float, now: float) -> list[Drop]:
        """Drop who of a kind is due by `soonest`, before which nothing could be done."""
        gone = self.kinds.take_before(kind, soonest)
        drops = [_too_late(request, self._standing.due(request), now) for request in gone]
        self.dropped.extend(drops)
        return drops

    def _supersede(self, entry: Entry, rank: float, source: str) -> None:
        """Queue a request in the place of its source's last one."""
        key, number, request, since, due = entry
        if len(self._latest) > 2 * self.kinds.num_requests + SPARE:
            kept = [each for each in self._latest.items() if self.kinds.find(each[1])]
            self._latest = dict(kept)
        last = self._latest.get(source)
        found = None if last is None else self.kinds.find(last)
        self._latest[source] = request
        if last is None or found is None:
            self.kinds.add(entry, rank)
            return
        since = found[0][3]
        self.kinds.add((key, number, request, since, due), rank)
        self.kinds.remove(last)  # after: its source keeps its turn
        error = f"a fresher request of source '{printable(source)}' took its place"
        self.dropped.append(Drop(last, SupersededError(error), "superseded"))


def _too_late(request: Request, due: float, now: float) -> Drop:
    """Return how a request ends that cannot be answered by when it is due."""
    if request.deadline is None or request.deadline > due:
        return Drop(request, MISSED, "target")
    return Drop(request, EXPIRED, "expired" if request.deadline <= now else "hopeless")
