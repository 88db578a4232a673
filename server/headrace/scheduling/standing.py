"""Where a request stands among others, by the model's configuration alone: pure."""

from __future__ import annotations

from math import inf

from headrace.engines.batching_spec import BatchingSpec, QueuePolicy
from headrace.scheduling.flow import Entry
from headrace.scheduling.request import Request

PATIENCE_S = 10.0  # a request that may take its time is served as if due so long after it came


class Standing:
    """What the configuration of one model says of its requests."""

    def __init__(self, spec: BatchingSpec, default_max_queue_size: int) -> None:
        """Read `spec`; `default_max_queue_size` is a priority's where it does not say."""
        self._spec = spec
        self.has_priorities = spec.num_priorities > 1
        self._is_ordered = spec.preserve_ordering
        self._target_s = spec.target_p99_s or inf
        self._default_max_queue_size = default_max_queue_size
        policies = (spec.default_policy, *spec.policies.values())
        sizes = [each.max_queue_size or default_max_queue_size for each in policies]
        self.least_queue_size = min(sizes)
        self.has_timeouts = any(each.default_timeout_s or each.may_override for each in policies)

    def rank(self, request: Request) -> float:
        """Return its priority level, 0.0 for the most urgent."""
        if not self.has_priorities:
            return 0.0
        return (request.priority or self._spec.default_priority) - 1.0

    def entry(self, request: Request, number: int, since: float) -> Entry:
        """Return what a queue keeps of a request: `key` and `due` at one go, as each is queued."""
        received_at, deadline = request.received_at, request.deadline
        due = received_at + self._target_s
        if deadline is not None and deadline < due:
            due = deadline
        key = 0.0 if self._is_ordered else min(due, received_at + PATIENCE_S)
        return key, number, request, since, due

    def due(self, request: Request) -> float:
        """Return by when it should be answered; infinity where that does not matter."""
        due, deadline = request.received_at + self._target_s, request.deadline
        return due if deadline is None or due < deadline else deadline

    def key(self, request: Request, due: float) -> float:
        """Return by what requests of one source are put in order: who is due first goes first.

        Where replies keep the order of requests, all are equal, and who came first goes first.
        """
        if self._is_ordered:
            return 0.0
        return min(due, request.received_at + PATIENCE_S)

    def policy(self, request: Request) -> QueuePolicy:
        """Return what holds for its priority."""
        return self._spec.policy(request.priority or self._spec.default_priority)

    def max_queue_size(self, request: Request) -> int:
        """Return how many of its priority may wait."""
        return self.policy(request).max_queue_size or self._default_max_queue_size
