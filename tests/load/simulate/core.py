"""The real core in virtual time: arrivals go in, the slots of one model serve them.

What is real: scheduler, admission, blocks, batcher, slots, lanes, poller; and every answer is
checked to be its request's own. What is not: the device (`device.py`), and the host, which takes no
time but what `HostCost` says.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np

from headrace.engines.base import Kind, Layout
from headrace.engines.layout import plan_layout
from headrace.errors import HeadraceError
from headrace.metrics import Metrics
from headrace.scheduling.admission import Admission
from headrace.scheduling.batcher import Batcher
from headrace.scheduling.line import Line
from headrace.scheduling.request import Request
from headrace.scheduling.scheduler import Scheduler
from headrace.slots.batch import Batch, Output
from headrace.slots.blocks import BlockPool
from headrace.slots.capacity import Capacity
from headrace.slots.lane import Lane
from headrace.slots.poller import Poller
from headrace.slots.pool import SlotPool
from headrace.slots.slot import Slot
from helpers.core_rig import AddOne
from load.simulate.arrivals import Arrival
from load.simulate.curves import ServiceCurve
from load.simulate.device import Share, SharedDevice

ROW_BYTES: Final = 8
PLUS_ONE: Final = bytes((byte + 1) % 256 for byte in range(256))  # what the engine does to a byte
BUDGET_BYTES: Final = 256 << 20
MAX_RECEIVED: Final = 32  # requests between two steps, as the native transport hands them over
MAX_IDLE_TURNS: Final = 1000  # steps at one moment in which nothing happens: nobody would wait

MakeBatcher = Callable[[SlotPool, Capacity], Batcher]
Draw = Callable[[int], float]  # rows → seconds that this batch takes


@dataclass(frozen=True, slots=True)
class HostCost:
    """What the one thread that steps the core spends on a request, in seconds."""

    accept_s: float = 0.0
    refuse_s: float = 0.0  # at once, or after it had waited
    reply_s: float = 0.0


@dataclass(slots=True)
class Ending:
    """How a request ended: `error` is the name of its exception's class, "" for a reply."""

    arrival: Arrival
    ended_s: float = math.nan
    error: str = ""

    @property
    def latency_s(self) -> float:
        """From its arrival to its end."""
        return self.ended_s - self.arrival.at_s


class TimedSlot(Slot):
    """A slot that tells the device how long each batch computes."""

    def __init__(self, device: SharedDevice, engine: AddOne, index: int, draw: Draw) -> None:
        stream = device.open_stream()
        context = engine.open_context(stream)
        super().__init__(index, device, stream, context, clock=lambda: device.now, has_marks=True)
        self._timed = device
        self._draw = draw
        self.batch_rows: Counter[int] = Counter()

    def enqueue(self, lane: Lane, batch: Batch[Any]) -> None:
        """Put the batch on the stream, with a duration of its own."""
        rows = batch.layout.runs_as.input_shapes[0][0]
        self.batch_rows[batch.rows] += 1
        self._timed.launch_s = self._draw(rows)
        super().enqueue(lane, batch)


class VirtualCore:
    """One model on one device, and time that passes only when nothing is left to do."""

    def __init__(
        self,
        curve: ServiceCurve,
        make_batcher: MakeBatcher,
        *,
        draw: Draw | None = None,
        num_slots: int = 1,
        host: HostCost = HostCost(),
        max_queue_size: int = 1024,
        deadline_s: float = math.inf,
    ) -> None:
        """Open everything.

        Args:
            curve: How long batches compute, alone on the device.
            make_batcher: The policy.
            draw: Each batch's own time; the curve's mean where there is none.
            num_slots: Streams that share the device.
            host: What requests cost the stepping thread.
            max_queue_size: Of the model.
            deadline_s: What each request has from its arrival on.
        """
        self.device = SharedDevice(Share(curve.speed_up if curve.speed_ups else None))
        self.engine = AddOne(self.device)
        draw = draw or curve.mean_s
        self.slots = [
            TimedSlot(self.device, self.engine, index, draw) for index in range(num_slots)
        ]
        self.capacity = Capacity()
        learn_as_warm_up(self.capacity, curve)
        self.pool = SlotPool(self.slots)
        self.metrics = Metrics().model(curve.name, "1")
        self.batcher = make_batcher(self.pool, self.capacity)
        self.line = Line(curve.name, self.batcher, self.pool, self.metrics, max_queue_size)
        self.blocks = BlockPool(self.device, BUDGET_BYTES)
        self.scheduler = Scheduler(
            self.blocks,
            Poller(),
            Admission(self.blocks, max_waiting_bytes=BUDGET_BYTES),
            clock=lambda: self.device.now,
        )
        self.scheduler.add_line(self.line)
        self.kind: Kind = Kind(partial(_layout, lambda: self.kind))
        self._host = host
        self._deadline_s = deadline_s
        self._has_more = False
        self._wrong: list[str] = []  # told at the end: the core lets no fault of a caller through

    def play(self, arrivals: Sequence[Arrival]) -> list[Ending]:
        """Let them come, and time pass until the last of them has ended.

        Raises:
            AssertionError: A request hangs, ended twice or not at all, or had another's answer; or
                the core asks to be stepped again and again though nothing happens.
        """
        endings = [Ending(arrival) for arrival in arrivals]
        next_index, num_idle = 0, 0
        while next_index < len(arrivals) or not self.scheduler.is_idle:
            before = self.device.now
            coming_s = arrivals[next_index].at_s if next_index < len(arrivals) else math.inf
            self._wait(coming_s)
            num_before, last = next_index, min(next_index + MAX_RECEIVED, len(arrivals))
            while next_index < last and arrivals[next_index].at_s <= self.device.now:
                self._submit(endings[next_index], next_index)
                next_index += 1
            has_news = self._has_news() or next_index > num_before or self._has_more
            self._has_more = self.scheduler.step(self.device.now)
            num_idle = 0 if has_news or self.device.now > before else num_idle + 1
            assert num_idle < MAX_IDLE_TURNS, f"at {self.device.now} s the core turns idly"
        assert not any(math.isnan(ending.ended_s) for ending in endings), "a request never ended"
        assert not self._wrong, self._wrong
        assert self.blocks.num_leased == 0, "a block was not given back"
        return endings

    def close(self) -> None:
        """Close everything, and hold that nothing stays open."""
        self.scheduler.close()
        self.pool.close()
        self.engine.close()
        self.blocks.close()
        self.device.close()

    @property
    def batch_rows(self) -> Counter[int]:
        """How many batches of each number of rows ran."""
        return sum((slot.batch_rows for slot in self.slots), Counter())

    def _wait(self, coming_s: float) -> None:
        """Let time pass until there is something to do."""
        device = self.device
        look = device.now if self._has_more else self.scheduler.next_look(device.now)
        until_s = min(coming_s, math.inf if look is None else look)
        has_news = self._has_news()
        while not has_news and device.step_before(until_s):
            has_news = self._has_news()
        if not has_news:
            assert until_s < math.inf, "nothing will ever wake the core"
            device.run_until(until_s)

    def _has_news(self) -> bool:
        """Whether the poller would find something."""
        for slot in self.slots:
            if slot.in_flight:
                event = slot.in_flight[0].event
                if event.num_finished == event.num_recorded:  # type: ignore[attr-defined]
                    return True
        return False

    def _submit(self, ending: Ending, index: int) -> None:
        arrival, now = ending.arrival, self.device.now
        payload = index.to_bytes(ROW_BYTES, "little") * arrival.rows
        request = Request(
            self.line,
            self.kind.layout(arrival.rows),
            (payload,),
            rows=arrival.rows,
            deadline=None if self._deadline_s == math.inf else arrival.at_s + self._deadline_s,
            received_at=arrival.at_s,
            parsed_at=now,
            on_end=self._on_end,
            tag=(ending, payload),
            priority=arrival.priority,
            source=arrival.source,
        )
        try:
            self.scheduler.submit(request, now)
        except HeadraceError as error:
            self._end(ending, error)
        else:
            self._spend(self._host.accept_s)

    def _on_end(
        self, request: Request, outputs: Sequence[Output] | None, error: Exception | None
    ) -> None:
        ending, payload = request.tag
        if outputs is not None:
            ((_shape, answer),) = outputs
            if bytes(answer) != payload.translate(PLUS_ONE):
                self._wrong.append(f"{ending} got another's answer")
        self._end(ending, error)

    def _end(self, ending: Ending, error: Exception | None) -> None:
        if not math.isnan(ending.ended_s):
            self._wrong.append(f"{ending} ended again")
        self._spend(self._host.reply_s if error is None else self._host.refuse_s)
        ending.ended_s = self.device.now
        ending.error = "" if error is None else type(error).__name__

    def _spend(self, cost_s: float) -> None:
        """The host is busy: the device goes on, and nobody looks at it."""
        if cost_s:
            self.device.run_until(self.device.now + cost_s)


def noisy(curve: ServiceCurve, seed: int) -> Draw:
    """Return service times that stray from the curve, lognormally, with its spread."""
    rng = np.random.default_rng([seed, 1])  # apart from the arrivals
    sigma = math.sqrt(math.log1p(curve.spread**2))
    return lambda rows: curve.mean_s(rows) * rng.lognormal(-sigma * sigma / 2, sigma)


def exponential(curve: ServiceCurve, seed: int) -> Draw:
    """Return service times without memory."""
    rng = np.random.default_rng([seed, 1])  # apart from the arrivals
    return lambda rows: curve.mean_s(rows) * rng.exponential()


def learn_as_warm_up(capacity: Capacity, curve: ServiceCurve, num_runs: int = 5) -> None:
    """Teach what warm-up measures when a model is loaded: powers of two, alone on the device."""
    rows = 1
    while rows < curve.max_rows:
        for _ in range(num_runs):
            capacity.learn(rows, curve.mean_s(rows))
        rows *= 2
    for _ in range(num_runs):
        capacity.learn(curve.max_rows, curve.mean_s(curve.max_rows))


def _layout(kind: Callable[[], Kind], rows: int) -> Layout:
    size_bytes = rows * ROW_BYTES
    shape = (rows, ROW_BYTES)
    return replace(plan_layout([shape], [size_bytes], [shape], [size_bytes]), kind=kind())
