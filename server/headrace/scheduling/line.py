"""A model's line: the requests that wait for it, the policy that batches them, its slots."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.metrics import ModelMetrics
from headrace.scheduling.batcher import Batcher
from headrace.slots.pool import SlotPool


@dataclass(slots=True, eq=False)
class Line:
    """What the scheduler knows of one version of one model.

    Attributes:
        model: Its name, for messages.
        max_queue_size: How many requests may wait, those without a block included.
        num_waiting: How many wait for a block; the batcher holds the rest.
    """

    model: str
    batcher: Batcher
    pool: SlotPool
    metrics: ModelMetrics
    max_queue_size: int
    num_waiting: int = 0

    @property
    def length(self) -> int:
        """How many requests wait."""
        return len(self.batcher) + self.num_waiting
