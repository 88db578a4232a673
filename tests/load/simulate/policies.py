"""The policies that are compared, by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from headrace.engines.batching_spec import BatchingSpec
from headrace.scheduling.batcher import Batcher, SingleBatcher
from headrace.scheduling.dynamic import DynamicBatcher
from headrace.slots.capacity import Capacity
from headrace.slots.pool import SlotPool

MAX_QUEUE_SIZE: Final = 1024
DELAYS_MS: Final = (0, 1, 2, 5, 10, 20)


@dataclass(frozen=True, slots=True)
class Policy:
    """A way to serve: `spec` of the dynamic batcher, None for one request at a time."""

    name: str
    spec: BatchingSpec | None

    def batcher(self, pool: SlotPool, capacity: Capacity) -> Batcher:
        """Return an empty queue."""
        if self.spec is None:
            return SingleBatcher(pool.least_s)
        return DynamicBatcher(self.spec, capacity, pool.starts_at, MAX_QUEUE_SIZE)


def policies(max_rows: int, target_s: float) -> list[Policy]:
    """Return no batching, each fixed delay, and the target."""
    delays = [
        Policy(f"delay {delay_ms} ms", BatchingSpec(max_rows=max_rows, max_delay_s=delay_ms / 1e3))
        for delay_ms in DELAYS_MS
    ]
    aimed = Policy("target", BatchingSpec(max_rows=max_rows, target_p99_s=target_s))
    return [Policy("alone", None), *delays, aimed]
