"""How the requests of one model queue and run together, out of its configuration: pure.

Names follow Triton's `dynamic_batching` and `ModelQueuePolicy`; what is ours alone comes from
`parameters` under keys that start with `headrace.`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

MAX_USUAL_ROWS: Final = 12
"""Each size takes time at load, and a CUDA graph on each lane where graphs are on; a lane keeps a
few more graphs than these, for shapes that clients bring."""


@dataclass(frozen=True, slots=True)
class QueuePolicy:
    """What holds for the requests of one priority while they wait.

    Attributes:
        max_queue_size: How many may wait; 0 for the server's default, which is finite.
        default_timeout_s: How long one may wait in the queue; 0 for as long as its deadline lets.
        is_delayed: What waited longer runs behind all that did not (DELAY); it is refused otherwise
            (REJECT).
        may_override: A request's own `timeout` counts where it is shorter, or none is set.
    """

    max_queue_size: int = 0
    default_timeout_s: float = 0.0
    is_delayed: bool = False
    may_override: bool = False


@dataclass(frozen=True, slots=True)
class BatchingSpec:
    """The policy of one model's queue.

    Attributes:
        max_rows: Rows of a batch at most; 1 where requests run alone.
        preferred_rows: Sizes worth waiting for, rising; empty for none but the largest.
        max_delay_s: How long the oldest request may wait for company.
        preserve_ordering: Replies go out in the order in which the requests came.
        num_priorities: 1 where priorities are off; 1 is the most urgent.
        default_priority: Of requests that name none.
        default_policy: Of priorities that have no policy of their own.
        policies: By priority.
        target_p99_s: What latency is aimed at; 0 for none. It takes the place of `max_delay_s`.
        keeps_latest: Of each source only the freshest request waits.
        source_weights: What a source's share is, against 1.0 of those that are not in it.
    """

    max_rows: int = 1
    preferred_rows: tuple[int, ...] = ()
    max_delay_s: float = 0.0
    preserve_ordering: bool = False
    num_priorities: int = 1
    default_priority: int = 1
    default_policy: QueuePolicy = QueuePolicy()
    policies: Mapping[int, QueuePolicy] = field(default_factory=lambda: MappingProxyType({}))
    target_p99_s: float = 0.0
    keeps_latest: bool = False
    source_weights: Mapping[str | None, float] = field(default_factory=lambda: MappingProxyType({}))

    def policy(self, priority: int) -> QueuePolicy:
        """Return what holds for one priority."""
        return self.policies.get(priority, self.default_policy)

    def queue_size(self, default: int) -> int:
        """Return how many requests may wait, all priorities together; `default` of each alone."""
        return sum(self._queue_sizes(default))

    def least_queue_size(self, default: int) -> int:
        """Return how many requests of the priority with the fewest may wait."""
        return min(self._queue_sizes(default))

    def _queue_sizes(self, default: int) -> list[int]:
        levels = range(1, self.num_priorities + 1)
        return [self.policy(level).max_queue_size or default for level in levels]


def usual_rows(max_rows: int, preferred: Sequence[int] = ()) -> list[int]:
    """Return the batch sizes worth knowing before traffic comes, those that matter most first.

    One row, the most, what the configuration prefers, then doublings from one.
    """
    doubled = (1 << power for power in range(max_rows.bit_length()))
    wanted = dict.fromkeys((1, max_rows, *preferred, *doubled))
    return [rows for rows in wanted if 0 < rows <= max_rows][:MAX_USUAL_ROWS]
