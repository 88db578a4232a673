"""The core on the virtual device: a real scheduler, real slots, an engine whose answers are plain.

The engine adds 1 to every byte of its input. It works on the device's memory when its turn comes on
the stream, so what it reads is what lies there *then*: memory that was reused too early shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from headrace.device.base import Stream
from headrace.device.sim import SimDevice
from headrace.engines.base import Binding, Layout, Shape, Signature, TensorSpec
from headrace.engines.batching_spec import BatchingSpec
from headrace.engines.layout import plan_layout
from headrace.metrics import Metrics
from headrace.scheduling.admission import Admission
from headrace.scheduling.batcher import SingleBatcher
from headrace.scheduling.dynamic import DynamicBatcher
from headrace.scheduling.line import Line
from headrace.scheduling.ordering import Ordering
from headrace.scheduling.request import Request
from headrace.scheduling.scheduler import Scheduler
from headrace.slots.batch import Output
from headrace.slots.blocks import BlockPool
from headrace.slots.capacity import Capacity
from headrace.slots.poller import STALL_TIMEOUT_S, Poller
from headrace.slots.pool import SlotPool
from headrace.slots.slot import Slot


class AddOne:
    """An engine: every output byte is the input byte plus 1, modulo 256."""

    platform = "sim"
    is_blocking = False
    weights_bytes = 0
    profile_rows: tuple[int, ...] = ()
    signature = Signature(
        (TensorSpec("x", "UINT8", (None,)),),
        (TensorSpec("y", "UINT8", (None,)),),
    )

    def __init__(self, device: SimDevice) -> None:
        self.device = device
        self.num_open_contexts = 0

    def use_profiles(self, wanted: Sequence[int]) -> None:
        """There are none."""

    def trial_shapes(self) -> Sequence[tuple[Shape, ...]]:
        """Return one small shape."""
        return [((1,),)]

    def check_inputs(self, shapes: Sequence[Shape]) -> None:
        """Take every shape."""

    def output_shapes(self, shapes: Sequence[Shape]) -> tuple[Shape, ...]:
        """Return the inputs' shapes."""
        return tuple(shapes)

    def open_context(self, stream: Stream) -> AddOneContext:
        """Open a context for one stream."""
        self.num_open_contexts += 1
        return AddOneContext(self, stream)

    def close(self) -> None:
        """Hold that every context is closed."""
        assert self.num_open_contexts == 0


class AddOneContext:
    """A context that notices when two of its runs overlap, or when it runs after its end."""

    def __init__(self, engine: AddOne, stream: Stream) -> None:
        self.engine = engine
        self.stream = stream
        self.is_open = True
        self.num_runs = 0

    def bind(
        self, layout: Layout, input_ptrs: Sequence[int], output_ptrs: Sequence[int]
    ) -> Binding:
        """Keep the addresses."""
        return Binding(layout, tuple(input_ptrs), tuple(output_ptrs))

    def enqueue(self, binding: Binding) -> None:
        """Compute on the device's memory as it is now."""
        assert self.is_open, "a closed context ran"
        self.num_runs += 1
        bytes_at = self.engine.device.bytes_at
        (size,) = binding.layout.input_sizes
        source = bytes_at(binding.input_ptrs[0], size) if size else np.zeros(0, np.uint8)
        if size:
            bytes_at(binding.output_ptrs[0], size)[:] = source + np.uint8(1)

    def close(self) -> None:
        """Close; a second call does nothing."""
        if self.is_open:
            self.is_open = False
            self.engine.num_open_contexts -= 1


@dataclass(eq=False)
class Asked:
    """A request that a test made, and how it ended."""

    payload: bytes
    request: Request
    replies: list[bytes] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)

    @property
    def num_ends(self) -> int:
        """How often it ended; 1 is right."""
        return len(self.replies) + len(self.errors)

    @property
    def is_right(self) -> bool:
        """Whether it was answered once, with its own data."""
        expected = bytes((byte + 1) % 256 for byte in self.payload)
        return self.replies == [expected] and not self.errors


class Rig:
    """Slots of one model on a virtual device, and a scheduler that is stepped by hand."""

    def __init__(
        self,
        *,
        num_slots: int = 2,
        is_unified: bool = False,
        budget_bytes: int = 1 << 20,
        max_queue_size: int = 64,
        max_waiting_bytes: int = 1 << 20,
        stall_timeout_s: float = STALL_TIMEOUT_S,
        has_marks: bool = False,
        launch_s: float = 0.001,
        batching: BatchingSpec | None = None,
    ) -> None:
        self.has_marks = has_marks
        self.device = SimDevice(is_unified=is_unified, copy_bytes_per_s=1e9, launch_s=launch_s)
        self.blocks = BlockPool(self.device, budget_bytes)
        self.engine = AddOne(self.device)
        self.slots = [self._slot(index) for index in range(num_slots)]
        self.pool = SlotPool(self.slots)
        self.metrics = Metrics().model("add_one", "1")
        self.line = self._line(batching, max_queue_size)
        self.admission = Admission(self.blocks, max_waiting_bytes=max_waiting_bytes)
        self.poller = Poller(stall_timeout_s=stall_timeout_s)
        self.scheduler = Scheduler(self.blocks, self.poller, self.admission, clock=self.clock)
        self.scheduler.add_line(self.line)
        self.asked: list[Asked] = []
        self._layouts: dict[int, Layout] = {}

    def clock(self) -> float:
        """Return the device's virtual time, in seconds."""
        return self.device.now

    def request(self, payload: bytes, *, deadline: float | None = None) -> Asked:
        """Make a request without submitting it."""
        asked: Asked

        def on_end(_: Request, outputs: Sequence[Output] | None, error: Exception | None) -> None:
            if error is not None:
                asked.errors.append(error)
            else:
                assert outputs is not None
                asked.replies.append(bytes(outputs[0][1]))

        request = Request(
            self.line,
            self.layout(len(payload)),
            (payload,),
            rows=1,
            deadline=deadline,
            received_at=self.clock(),
            parsed_at=self.clock(),
            on_end=on_end,
        )
        asked = Asked(payload, request)
        self.asked.append(asked)
        return asked

    def submit(self, payload: bytes, *, deadline: float | None = None) -> Asked:
        """Make a request and submit it; raises what refuses it."""
        asked = self.request(payload, deadline=deadline)
        self.scheduler.submit(asked.request, self.clock())
        return asked

    def layout(self, size: int) -> Layout:
        """Return the one layout for payloads of this size."""
        if size not in self._layouts:
            self._layouts[size] = plan_layout([(size,)], [size], [(size,)], [size])
        return self._layouts[size]

    def step(self) -> bool:
        """Step the scheduler at the virtual time that it is."""
        return self.scheduler.step(self.clock())

    def run(self) -> None:
        """Let device and scheduler work until nothing is left to do."""
        for _ in range(100_000):
            self.step()
            if not self.device.step():
                if self.scheduler.is_idle:
                    return
                self.device.run_until(self.clock() + 0.01)
        raise AssertionError("the core does not come to rest")

    def close(self) -> None:
        """Close in the order of the application, and hold that nothing stays open."""
        self.scheduler.close()
        self.pool.close()
        self.engine.close()
        self.blocks.close()
        assert self.device.leaks() == []
        self.device.close()

    def _line(self, spec: BatchingSpec | None, max_queue_size: int) -> Line:
        if spec is None:
            batcher = SingleBatcher(self.pool.least_s)
            return Line("add_one", batcher, self.pool, self.metrics, max_queue_size)
        capacity = Capacity()
        return Line(
            "add_one",
            DynamicBatcher(
                *(spec, capacity, self.pool.starts_at, max_queue_size),
                num_busy=self.pool.num_busy,
                num_idle=self.pool.num_idle,
                ends_at=self.pool.ends_at,
            ),
            self.pool,
            self.metrics,
            spec.queue_size(max_queue_size),
            capacity=capacity,
            ordering=Ordering() if spec.preserve_ordering else None,
        )

    def _slot(self, index: int) -> Slot:
        stream = self.device.open_stream()
        return Slot(
            index,
            self.device,
            stream,
            self.engine.open_context(stream),
            clock=self.clock,
            has_marks=self.has_marks,
        )
