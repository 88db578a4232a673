"""Sequences on the virtual device: an engine that adds what came to what the sequence has."""

from __future__ import annotations

from collections.abc import Sequence as Several
from typing import Any

from headrace.device.base import Stream
from headrace.engines.base import Binding, Layout
from headrace.engines.batching_spec import BatchingSpec
from headrace.engines.layout import plan_layout
from headrace.engines.sequence_spec import SequenceSpec, State
from headrace.errors import EngineError
from headrace.metrics import Metrics
from headrace.scheduling.dynamic import DynamicBatcher
from headrace.scheduling.line import Line
from headrace.scheduling.request import Request
from headrace.scheduling.sequence import Carried, Part
from headrace.scheduling.sequences import SequenceBatcher
from headrace.scheduling.states import States
from headrace.slots.batch import Batch, Output
from headrace.slots.capacity import Capacity
from headrace.slots.pool import SlotPool
from headrace.slots.slot import Slot
from helpers.core_rig import AddOne, AddOneContext, Asked, Rig
from helpers.queue_rig import new_kind

WIDTH = 16  # bytes of an input and of the state


def spec_of(*, initial: bytes = bytes(WIDTH), idle_s: float = 1.0) -> SequenceSpec:
    """One state behind one input: `s` goes in, the second output comes out."""
    state = State(1, 1, "s", "UINT8", (len(initial),), initial)
    return SequenceSpec(idle_s, 0, False, 0, (), (state,))


class SumContext(AddOneContext):
    """`y` and the state's output are `x` plus the state, modulo 256."""

    error: EngineError | None = None  # of the next run

    def enqueue(self, binding: Binding) -> None:
        """Compute on the device's memory as it is now."""
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        self.num_runs += 1
        bytes_at = self.engine.device.bytes_at
        sizes, outputs = binding.layout.input_sizes, binding.output_ptrs
        came, had = (
            bytes_at(ptr, size).copy() for ptr, size in zip(binding.input_ptrs, sizes, strict=True)
        )
        for ptr, size in zip(outputs, binding.layout.output_sizes, strict=True):
            bytes_at(ptr, size)[:] = came + had


class SequenceRig(Rig):
    """One model that keeps the sum of what came."""

    def __init__(
        self, *, spec: SequenceSpec | None = None, max_sequences: int = 8, **options: Any
    ) -> None:
        self.spec = spec or spec_of()
        self.max_sequences = max_sequences
        self.contexts: list[SumContext] = []
        super().__init__(**options)

    @property
    def sequences(self) -> SequenceBatcher:
        """The batcher."""
        assert self.line.sequences is not None
        return self.line.sequences

    def layout(self, size: int) -> Layout:
        """Return the one layout for inputs of this size."""
        if size not in self._layouts:
            shapes, sizes = [(size,), (WIDTH,)], [size, WIDTH]
            self._layouts[size] = plan_layout(shapes, sizes, shapes, sizes)
        return self._layouts[size]

    def ask(
        self,
        number: int,
        sequence_id: int | str = 1,
        *,
        is_start: bool = False,
        is_end: bool = False,
        deadline: float | None = None,
        line: Line | None = None,
    ) -> Asked:
        """Submit a part of a sequence: WIDTH bytes of a number."""
        asked = self.request(bytes([number] * WIDTH), deadline=deadline)
        asked.request.line = line or self.line
        asked.request.tensors = (*asked.request.tensors, b"")
        asked.request.part = Part(sequence_id, is_start, is_end)
        self.scheduler.submit(asked.request, self.clock())
        return asked

    def sums(self, *asked: Asked) -> list[int | str]:
        """Return what came back, each one number, or the name of the error."""
        told: list[int | str] = []
        for each in asked:
            assert each.num_ends == 1
            if each.errors:
                told.append(type(each.errors[0]).__name__)
            else:
                (number,) = set(each.replies[0])
                told.append(number)
        return told

    def _line(self, spec: BatchingSpec | None, max_queue_size: int) -> Line:
        policy, capacity = spec or BatchingSpec(), Capacity()

        def batcher_of(pool: SlotPool) -> SequenceBatcher:
            inner = DynamicBatcher(
                *(policy, capacity, pool.starts_at, max_queue_size),
                num_busy=pool.num_busy,
                num_idle=pool.num_idle,
                ends_at=pool.ends_at,
            )
            bounds = {"idle_s": self.spec.idle_s, "max_sequences": self.max_sequences}
            return SequenceBatcher(inner, States(self.spec), **bounds)  # type: ignore[arg-type]

        return Line(
            *("sum", batcher_of(self.pool), self.pool, self.metrics, max_queue_size),
            capacity=capacity,
            batcher_of=batcher_of,
        )

    def _slot(self, index: int) -> Slot:
        stream = self.device.open_stream()
        context = _opened(self.engine, stream)
        self.contexts.append(context)
        return Slot(index, self.device, stream, context, clock=self.clock)


def _opened(engine: AddOne, stream: Stream) -> SumContext:
    engine.num_open_contexts += 1
    return SumContext(engine, stream)


class Ledger:
    """Moves states as a test sees them: what each request ran on, and what a run leaves.

    A state is the numbers of the requests that made it, one byte each.
    """

    def __init__(self) -> None:
        self.seen: dict[Request, bytes] = {}

    def put(self, request: Request, carried: Carried | None) -> None:
        """Note what a request runs on."""
        assert request not in self.seen, "it had its turn before"
        self.seen[request] = b"" if carried is None else carried[0]

    def take(self, outputs: Several[Output]) -> Carried:
        """Return what the run left."""
        ((_, data),) = outputs
        return (bytes(data),)


class SequenceQueue:
    """The batcher by itself, a clock in the test's hand, and what became of each request."""

    def __init__(self, *, idle_s: float = 10.0, max_sequences: int = 3, max_rows: int = 4) -> None:
        self.now = 0.0
        self.ledger = Ledger()
        self.kind = new_kind()
        inner = DynamicBatcher(BatchingSpec(max_rows=max_rows), Capacity(), lambda now: now, 1000)
        self.batcher = SequenceBatcher(
            inner, self.ledger, idle_s=idle_s, max_sequences=max_sequences
        )
        self.line = Line("m", self.batcher, SlotPool(()), Metrics().model("m", "1"), 1000)
        self.asked: list[Request] = []
        self.in_flight: list[Request] = []
        self.ended: dict[Request, str] = {}

    def ask(
        self,
        sequence_id: int | str,
        *,
        is_start: bool = False,
        is_end: bool = False,
        deadline_s: float | None = None,
    ) -> Request:
        """Queue a request; its tag is its number."""
        request = Request(
            self.line,
            self.kind.layout(1),
            (),
            rows=1,
            deadline=None if deadline_s is None else self.now + deadline_s,
            received_at=self.now,
            parsed_at=self.now,
            on_end=lambda *_: None,
            tag=len(self.asked),
        )
        request.part = Part(sequence_id, is_start, is_end)
        request.staged_at = self.now
        self.asked.append(request)
        self.batcher.add(request, self.now)
        self._collect()
        return request

    def start(self, sequence_id: int | str, **more: Any) -> Request:
        """Queue the first request of a sequence."""
        return self.ask(sequence_id, is_start=True, **more)

    def next_batch(self) -> Batch[Request] | None:
        """Let what may run begin."""
        batch = self.batcher.next_batch(self.now)
        self._collect()
        if batch is not None:
            self.in_flight.extend(batch.requests)
        return batch

    def begin(self) -> list[Request]:
        """Let all that may run begin, and return it."""
        begun: list[Request] = []
        while (batch := self.next_batch()) is not None:
            begun.extend(batch.requests)
        return begun

    def finish(self, request: Request, error: Exception | None = None) -> None:
        """End a run, well or with an error."""
        self.in_flight.remove(request)
        left = self.ledger.seen[request] + bytes([request.tag % 256])
        outputs = None if error is not None else [((len(left),), left)]
        how = self.batcher.leave(request, outputs, error, self.now)
        self._end(request, "answered" if how is None else type(how).__name__)
        self._collect()

    def cancel(self, request: Request) -> bool:
        """Take a request out, as when its caller leaves; False when it runs or has ended."""
        if request in self.ended or not self.batcher.remove(request):
            return False
        self._end(request, "cancelled")
        return True

    def wait(self, seconds: float) -> None:
        """Let time pass, and what is late end."""
        self.now += seconds
        self.batcher.reap(self.now)
        self.batcher.expire(self.now)
        self._collect()

    def how(self, *requests: Request) -> list[str]:
        """Return how these ended; "" for not yet."""
        return [self.ended.get(request, "") for request in requests]

    def _collect(self) -> None:
        for drop in self.batcher.dropped:
            self._end(drop.request, type(drop.error).__name__)
        self.batcher.dropped.clear()

    def _end(self, request: Request, how: str) -> None:
        assert request not in self.ended, "it ended twice"
        self.ended[request] = how
