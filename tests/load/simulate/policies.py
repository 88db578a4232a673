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
ALONE: Final = "no batching"
TARGET: Final = "target"
DELAYS_MS: Final = (0, 1, 2, 5, 10, 20, 50)


@dataclass(frozen=True, slots=True)
class Policy:
    """A way to serve; one request at a time where `max_rows` is 1."""

    name: str
    max_rows: int = 1
    max_delay_s: float = 0.0
    target_p99_s: float = 0.0

    def batcher(self, pool: SlotPool, capacity: Capacity) -> Batcher:
        """Return an empty queue."""
        if self.max_rows == 1:
            return SingleBatcher(pool.least_s)
        spec = BatchingSpec(
            max_rows=self.max_rows, max_delay_s=self.max_delay_s, target_p99_s=self.target_p99_s
        )
        return DynamicBatcher(
            *(spec, capacity, pool.starts_at, MAX_QUEUE_SIZE),
            num_busy=pool.num_busy,
            num_idle=pool.num_idle,
            ends_at=pool.ends_at,
        )


def policies(max_rows: int, target_s: float) -> list[Policy]:
    """Return no batching, each fixed delay, and the target, last."""
    delays = [
        Policy(f"delay {delay_ms} ms", max_rows, max_delay_s=delay_ms / 1e3)
        for delay_ms in DELAYS_MS
    ]
    return [Policy(ALONE), *delays, Policy(TARGET, max_rows, target_p99_s=target_s)]
