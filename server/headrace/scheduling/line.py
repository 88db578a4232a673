"""A model's line: the requests that wait for it, the policy that batches them, its slots."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from headrace.errors import NoSlotError, RetiredError
from headrace.metrics import ModelMetrics
from headrace.scheduling.batcher import Batcher, SingleBatcher
from headrace.scheduling.ordering import Ordering
from headrace.scheduling.request import Request
from headrace.scheduling.sequences import SequenceBatcher
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
        is_ensemble: It has no slots: its requests make requests to other lines.
        sequences: The batcher, where it keeps state between requests.
        pins: Lines of one slot each, taken out of the pool for one stream each.
        batcher_of: Makes the batcher of such a line.
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
    is_ensemble: bool = False
    pins: list[Line] = field(default_factory=list)
    batcher_of: Callable[[SlotPool], Batcher] = lambda pool: SingleBatcher(pool.least_s)
    has_policy: bool = field(init=False)
    sequences: SequenceBatcher | None = field(init=False)

    def __post_init__(self) -> None:
        """Requests that run alone, in order of arrival, pay for nothing else."""
        self.burst_size = self.burst_size or self.max_queue_size
        self.has_policy = not isinstance(self.batcher, SingleBatcher)
        if self.has_policy:
            for slot in self.pool.slots:
                slot.forecast.usual_s = self.capacity.mean_s
        self.sequences = self.batcher if isinstance(self.batcher, SequenceBatcher) else None

    @property
    def length(self) -> int:
        """How many requests wait."""
        return len(self.batcher) + self.num_waiting

    @property
    def has_work(self) -> bool:
        """Whether a request waits, is in flight, or its reply is held back."""
        is_queued = self.length or self.batcher.dropped or (self.ordering and len(self.ordering))
        is_in_flight = any(slot.in_flight for slot in self.pool.slots)
        return bool(is_queued) or is_in_flight or any(pin.has_work for pin in self.pins)

    def check_current(self) -> None:
        """Hold that the line takes requests still.

        Raises:
            RetiredError: It does not.
        """
        if self.is_retired:
            raise RetiredError(f"this version of {self.model} has been unloaded")

    def retire(self) -> None:
        """Take nothing more: the queue counts as full, so that others pay for no question."""
        self.is_retired = True
        self.max_queue_size = 0
        self.batcher.hurry()
        for pin in self.pins:
            pin.retire()

    def pin(self) -> Line:
        """Give one slot to a stream alone, behind what is in flight on it; one stays for the rest.

        Raises:
            NoSlotError: There is none to spare.
            RetiredError: The line takes nothing more.
        """
        self.check_current()
        if self.is_ensemble:
            raise NoSlotError(f"{self.model} is an ensemble: it has no slots that could be pinned")
        slot = self.pool.reserve()
        if slot is None:
            num_slots, num_pinned = len(self.pool.slots), self.pool.num_reserved
            raise NoSlotError(
                f"no slot of {self.model} is left to pin: it has {num_slots}, {num_pinned} are "
                "pinned and one stays for all; the operator can raise instance_group.count"
            )
        pool = SlotPool((slot,))
        pinned = Line(
            self.model,
            self.batcher_of(pool),
            pool,
            self.metrics,
            self.max_queue_size,
            capacity=self.capacity,
            burst_size=self.burst_size,
        )
        self.pins.append(pinned)
        return pinned

    def unpin(self, pinned: Line) -> None:
        """Take the slot back; nothing waits for it, and what is in flight on it is served."""
        assert not pinned.length, "a line was given up with requests in it"
        self.pins.remove(pinned)
        self.pool.release(pinned.pool.slots[0])

    def account(self, batch: Batch[Request], timing: Timing) -> None:
        """Learn from a batch that ran; who is answered first stands for it in statistics."""
        padded = batch.layout.padded_to
        rows = batch.rows if padded is None else padded.input_shapes[0][0]
        self.capacity.learn(rows, timing.took_s, batch.together)
        is_first = True
        claims: list[None] | None = None if self.ordering is None else [None]
        for request in batch.requests:
            request.claims = claims
            request.batch_rows = batch.rows
            request.is_first = is_first and not request.is_abandoned
            is_first = is_first and request.is_abandoned
