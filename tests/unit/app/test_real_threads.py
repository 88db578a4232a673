"""The core with the host device's own threads: contexts are never shared, answers never mixed."""

from __future__ import annotations

import ctypes
import random
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pytest

from headrace.device.base import Stream
from headrace.device.host import HostDevice
from headrace.engines.base import Binding, Layout
from headrace.engines.layout import plan_layout
from headrace.errors import AbandonedError
from headrace.link.local import LocalLink
from headrace.metrics import Metrics
from headrace.scheduling.admission import Admission
from headrace.scheduling.batcher import SingleBatcher
from headrace.scheduling.line import Line
from headrace.scheduling.request import Request
from headrace.scheduling.scheduler import Scheduler
from headrace.slots.batch import Output
from headrace.slots.blocks import BlockPool
from headrace.slots.poller import Poller
from headrace.slots.pool import SlotPool
from headrace.slots.slot import Slot

NUM_SLOTS = 3
WAIT_S = 15.0


@dataclass
class WatchedContext:
    """Adds one to each byte, slowly enough to be interrupted, and notes who runs it."""

    stream: Stream
    threads: set[int] = field(default_factory=set)
    is_running: bool = False
    has_overlapped: bool = False

    def bind(
        self, layout: Layout, input_ptrs: Sequence[int], output_ptrs: Sequence[int]
    ) -> Binding:
        return Binding(layout, tuple(input_ptrs), tuple(output_ptrs))

    def enqueue(self, binding: Binding) -> None:
        self.has_overlapped |= self.is_running
        self.is_running = True
        self.threads.add(threading.get_ident())
        (size,) = binding.layout.input_sizes
        source = (ctypes.c_ubyte * size).from_address(binding.input_ptrs[0])
        target = (ctypes.c_ubyte * size).from_address(binding.output_ptrs[0])
        for index in range(size):
            target[index] = (source[index] + 1) % 256
        self.is_running = False

    def close(self) -> None:
        """Nothing is open."""


class Core:
    """Three slots on the host device; launchers step the core when they have finished."""

    def __init__(self) -> None:
        self.device = HostDevice()
        self.blocks = BlockPool(self.device, 1 << 20)
        self.contexts: list[WatchedContext] = []
        self.slots = [self._slot(index) for index in range(NUM_SLOTS)]
        self.line = Line(
            "m", SingleBatcher(), SlotPool(self.slots), Metrics().model("m", "1"), 10_000
        )
        scheduler = Scheduler(
            self.blocks,
            Poller(),
            Admission(self.blocks, max_waiting_bytes=1 << 30),
            clock=time.monotonic,
        )
        scheduler.add_line(self.line)
        self.link = LocalLink(scheduler)
        self.device.on_progress = self.step
        self.layout = plan_layout([(500,)], [500], [(500,)], [500])
        self.num_ends = 0
        self.wrong: list[str] = []
        self.all_ended = threading.Event()

    def step(self) -> None:
        while self.link.step(time.monotonic()):
            pass

    def submit(self, payload: bytes) -> Request:
        expected = bytes((byte + 1) % 256 for byte in payload)

        def on_end(_: Request, outputs: Sequence[Output] | None, error: Exception | None) -> None:
            self.num_ends += 1  # within the core: one thread at a time
            if error is None:
                assert outputs is not None
                if bytes(outputs[0][1]) != expected:
                    self.wrong.append("another's data")
            elif not isinstance(error, AbandonedError):
                self.wrong.append(repr(error))

        request = Request(
            self.line,
            self.layout,
            (payload,),
            rows=1,
            deadline=None,
            received_at=0.0,
            parsed_at=0.0,
            on_end=on_end,
        )
        self.link.submit(request, time.monotonic())
        self.step()
        return request

    def rest(self, num_requests: int) -> None:
        """Wait until so many have ended."""
        give_up_at = time.monotonic() + WAIT_S
        while self.num_ends < num_requests or not self.link.is_idle:
            assert time.monotonic() < give_up_at, f"{self.num_ends} of {num_requests} ended"
            self.step()

    def close(self) -> None:
        self.line.pool.close()
        self.blocks.close()
        assert self.device._ledger.names() == []

    def _slot(self, index: int) -> Slot:
        stream = self.device.open_stream()
        context = WatchedContext(stream)
        self.contexts.append(context)
        return Slot(index, self.device, stream, context, clock=time.monotonic)


@pytest.fixture
def core() -> Iterator[Core]:
    core = Core()
    yield core
    core.close()


def test_a_context_belongs_to_one_stream_and_one_thread_at_a_time(core: Core) -> None:
    """Each slot's context runs on that slot's launcher only, never twice at once."""
    for index in range(400):
        core.submit(bytes([index % 256]) * 500)
    core.rest(400)
    assert core.wrong == []
    assert all(context.threads for context in core.contexts), "a slot had no work"
    assert [len(context.threads) for context in core.contexts] == [1] * NUM_SLOTS
    assert len(set.union(*(context.threads for context in core.contexts))) == NUM_SLOTS
    assert threading.get_ident() not in set.union(*(c.threads for c in core.contexts))
    assert not any(context.has_overlapped for context in core.contexts)


def test_cancels_from_another_thread_mix_nothing_up(core: Core) -> None:
    """While launchers end and start work, callers leave: one end each, only own data, no leak."""
    rng = random.Random(1)
    requests: list[Request] = []
    is_done = threading.Event()

    def leave() -> None:
        chosen = random.Random(2)
        while not is_done.is_set():
            if requests:
                core.link.cancel(chosen.choice(requests))

    leaving = threading.Thread(target=leave)
    leaving.start()
    for _ in range(300):
        requests.append(core.submit(rng.randbytes(500)))  # noqa: PERF401 -- seen one by one
    is_done.set()
    leaving.join()
    core.rest(300)
    assert core.num_ends == 300
    assert core.wrong == []
    assert core.blocks.num_leased == 0
