"""A model's line: the requests that wait for it, the policy that batches them, its slots."""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace.metrics import ModelMetrics
from headrace.scheduling.batcher import Batcher, SingleBatcher
from headrace.scheduling.ordering import Ordering
from headrace.scheduling.request import Request
from headrace.slots.batch import Batch, Timing
from headrace.slots.capacity import Capacity
from headrace.slots.pool import SlotPool


@dataclass(slots=True, eq=False)
class Line:
    """What the scheduler knows of one version of one model.

    Attributes:
        model: Its name, for messages.
        max_queue_size: How many requests may wait, those without a block included.
        num_waiting: How many wait for a block; the batcher holds the rest.
        capacity: What batches take, by their rows; kept up to date where there is a policy.
        ordering: Of replies; None where each leaves as soon as it is there.
        is_retired: It takes nothing more; what is in is served.
        burst_size: Where so many wait, the next that comes lets free lanes be filled first, though
            the turn is not over; by default a full queue.
    """

    model: str
    batcher: Batcher
    pool: SlotPool
    metrics: ModelMetrics
    max_queue_size: int
    num_waiting: int = 0
    capacity: Capacity = field(default_factory=Capacity)
    ordering: Ordering | None = None
    burst_size: int = 0
    is_retired: bool = False
    has_policy: bool = field(init=False)

    def __post_init__(self) -> None:
        """Requests that run alone, in order of arrival, pay for nothing else."""
        self.burst_size = self.burst_size or self.max_queue_size
        self.has_policy = not isinstance(self.batcher, SingleBatcher)

    @property
    def length(self) -> int:
        """How many requests wait."""
        return len(self.batcher) + self.num_waiting

    @property
    def has_work(self) -> bool:
        """Whether a request waits, is in flight, or its reply is held back."""
        is_queued = self.length or self.batcher.dropped or (self.ordering and len(self.ordering))
        return bool(is_queued) or any(slot.in_flight for slot in self.pool.slots)

    def retire(self) -> None:
        """Take nothing more: the queue counts as full, so that others pay for no question."""
        self.is_retired = True
        self.max_queue_size = 0

    def account(self, batch: Batch[Request], timing: Timing) -> None:
        """Learn from a batch that ran; who is answered first stands for it in statistics."""
        padded = batch.layout.padded_to
        rows = batch.rows if padded is None else padded.input_shapes[0][0]
        self.capacity.learn(rows, timing.took_s)
        is_first = True
        for request in batch.requests:
            request.batch_rows = batch.rows
            request.is_first = is_first and not request.is_abandoned
            is_first = is_first and request.is_abandoned
