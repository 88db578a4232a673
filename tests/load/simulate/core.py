"""The real core in virtual time: arrivals go in, the slots of one model serve them.

What is real: scheduler, admission, blocks, batcher, slots, lanes, poller, and the trial runs that
measure the model beforehand; and every answer is checked to be its request's own. What is not: the
device (`device.py`), and the host, which takes no time but what `HostCost` says.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from typing import Any, Final

from headrace.engines.batching_spec import usual_rows
from headrace.errors import HeadraceError
from headrace.metrics import Metrics
from headrace.scheduling.admission import Admission
from headrace.scheduling.batcher import Batcher
from headrace.scheduling.line import Line
from headrace.scheduling.ordering import Ordering
from headrace.scheduling.request import Request
from headrace.scheduling.scheduler import Scheduler
from headrace.slots.batch import Output
from headrace.slots.blocks import BlockPool
from headrace.slots.capacity import Capacity
from headrace.slots.poller import STALL_TIMEOUT_S, Poller
from headrace.slots.pool import SlotPool
from headrace.slots.trial_batches import TrialBatches
from helpers.core_rig import AddOne
from load.simulate.arrivals import Arrival
from load.simulate.curves import ServiceCurve
from load.simulate.device import Share, SharedDevice
from load.simulate.slots import ROW_BYTES, Bound, Calls, Draw, TimedSlot

BUDGET_BYTES: Final = 256 << 20
MAX_RECEIVED: Final = 32  # requests between two steps, as the native transport hands them over
MAX_IDLE_TURNS: Final = 1000  # steps at one moment in which nothing happens: nobody would wait
PLUS_ONE: Final = bytes((byte + 1) % 256 for byte in range(256))  # what the engine does to a byte

MakeBatcher = Callable[[SlotPool, Capacity], Batcher]
Action = Callable[[], None]


@dataclass(frozen=True, slots=True)
class HostCost:
    """What the one thread that steps the core spends on a request, in seconds."""

    accept_s: float = 0.0
    refuse_s: float = 0.0  # at once, or after it had waited
    reply_s: float = 0.0


FREE_HOST: Final = HostCost()


@dataclass(slots=True)
class Ending:
    """How a request ended; `error` is the name of its exception's class, "" for a reply."""

    arrival: Arrival
    ended_s: float = math.nan
    error: str = ""
    place: int = -1  # among all ends

    @property
    def latency_s(self) -> float:
        """From its arrival to its end."""
        return self.ended_s - self.arrival.at_s


class VirtualCore:
    """One model on one device, and time that passes only when nothing is left to do."""

    def __init__(
        self,
        curve: ServiceCurve,
        make_batcher: MakeBatcher,
        *,
        draw: Draw | None = None,
        num_slots: int = 1,
        num_kinds: int = 1,
        host: HostCost = FREE_HOST,
        max_queue_size: int = 1024,
        has_order: bool = False,
        budget_bytes: int = BUDGET_BYTES,
        stall_timeout_s: float = STALL_TIMEOUT_S,
    ) -> None:
        """Open everything, and measure the model as the server does when it loads one.

        Args:
            curve: How long batches compute, alone on the device.
            make_batcher: The policy.
            draw: Each batch's own time; the curve's mean where there is none.
            num_slots: Streams that share the device.
            num_kinds: Of requests, which cannot share a batch.
            host: What requests cost the stepping thread.
            max_queue_size: Of the model.
            has_order: Replies leave in the order in which the requests came.
            budget_bytes: Staging memory, and as much may wait for it.
            stall_timeout_s: Of the poller.
        """
        self.device = SharedDevice(Share(curve.speed_up if curve.speed_ups else None))
        self.engine = AddOne(self.device)
        self.log: list[Bound] = []
        self.slots = [
            TimedSlot(self.device, self.engine, index, curve.mean_s, self.log)
            for index in range(num_slots)
        ]
        self.calls = [Calls(curve.sizes) for _ in range(num_kinds)]
        self.capacity = Capacity()
        self.pool = SlotPool(self.slots)
        self.blocks = BlockPool(self.device, BUDGET_BYTES)
        self._measure(curve)
        for slot in self.slots:
            slot.draw = draw or curve.mean_s
        self.blocks.close()
        self.blocks = BlockPool(self.device, budget_bytes)
        self.metrics = Metrics().model(curve.name, "1")
        self.batcher = make_batcher(self.pool, self.capacity)
        self.line = Line(
            curve.name,
            self.batcher,
            self.pool,
            self.metrics,
            max_queue_size,
            capacity=self.capacity,
            ordering=Ordering() if has_order else None,
        )
        self.admission = Admission(self.blocks, max_waiting_bytes=budget_bytes)
        poller = Poller(stall_timeout_s=stall_timeout_s)
        self.scheduler = Scheduler(self.blocks, poller, self.admission, clock=self.clock)
        self.scheduler.add_line(self.line)
        self.checks: list[Action] = []  # called after every step
        self.requests: list[Request] = []  # accepted, in order
        self.begun_s = 0.0  # when the last run began
        self._alone = Calls(has_kind=False)
        self._host = host
        self._actions: list[tuple[float, int, Action]] = []
        self._numbers = count()
        self._has_more = False
        self._has_progress = True  # an event has finished since nothing was found last
        self.device.on_progress = self._note_progress
        self._num_ended = 0
        self._wrong: list[str] = []  # told at the end: the core lets no fault of a caller through

    def clock(self) -> float:
        """Return the virtual time, in seconds."""
        return self.device.now

    def at(self, at_s: float, action: Action) -> None:
        """Let something happen in the coming run, so long after its beginning."""
        heappush(self._actions, (self.device.now + at_s, next(self._numbers), action))

    def play(self, arrivals: Sequence[Arrival]) -> list[Ending]:
        """Let them come, from now on, and time pass until the last of them has ended.

        Raises:
            AssertionError: A request hangs, ended twice or not at all, or had another's answer; or
                the core asks to be stepped again and again though nothing happens.
        """
        begin_s = self.begun_s = self.device.now
        endings = [Ending(each._replace(at_s=begin_s + each.at_s)) for each in arrivals]
        next_index, num_idle = 0, 0
        while next_index < len(endings) or not self.scheduler.is_idle:
            before = self.device.now
            coming_s = endings[next_index].arrival.at_s if next_index < len(endings) else math.inf
            self._wait(coming_s)
            has_news = self._has_news() or self._has_more
            last = min(next_index + MAX_RECEIVED, len(endings))
            while next_index < last and endings[next_index].arrival.at_s <= self.device.now:
                self._submit(endings[next_index], next_index)
                next_index, has_news = next_index + 1, True
            has_news = self._act() or has_news  # who comes may leave before the core is stepped
            self._has_more = self.scheduler.step(self.device.now)
            for check in self.checks:
                check()
            num_idle = 0 if has_news or self.device.now > before else num_idle + 1
            assert num_idle < MAX_IDLE_TURNS, f"at {self.device.now} s the core turns idly"
        assert not self._wrong, self._wrong
        assert not any(math.isnan(ending.ended_s) for ending in endings), "a request never ended"
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
        return Counter(bound.batch.rows for bound in self.log)

    def _measure(self, curve: ServiceCurve) -> None:
        kind = self.calls[0].kind
        layouts = {rows: kind.layout(rows) for rows in usual_rows(curve.max_rows)}
        trials = TrialBatches(layouts, self.blocks, clock=self.clock, until=math.inf)
        assert trials.measure(self.slots[0], self.capacity) == {}
        self.log.clear()
        self.device.share.busy_s = 0.0

    def _wait(self, coming_s: float) -> None:
        """Let time pass until there is something to do."""
        device = self.device
        look = device.now if self._has_more else self.scheduler.next_look(device.now)
        until_s = min(coming_s, math.inf if look is None else look)
        if self._actions:
            until_s = min(until_s, self._actions[0][0])
        has_news = self._has_news()
        while not has_news and device.step_before(until_s):
            has_news = self._has_news()
        if not has_news:
            assert until_s < math.inf, "nothing will ever wake the core"
            device.run_until(until_s)

    def _has_news(self) -> bool:
        """Whether the poller would find something."""
        if self._has_progress:
            for slot in self.slots:
                if slot.in_flight:
                    event: Any = slot.in_flight[0].event
                    if event.num_finished == event.num_recorded:
                        return True
            self._has_progress = False
        return self.device.is_dead and self.scheduler.sticky is None and self.scheduler.is_polling

    def _note_progress(self) -> None:
        self._has_progress = True

    def _act(self) -> bool:
        has_acted = False
        while self._actions and self._actions[0][0] <= self.device.now:
            heappop(self._actions)[2]()
            has_acted = True
        return has_acted

    def _submit(self, ending: Ending, index: int) -> None:
        arrival, now = ending.arrival, self.device.now
        payload = index.to_bytes(ROW_BYTES, "little") * arrival.rows
        calls = self._alone if arrival.kind < 0 else self.calls[arrival.kind]
        deadline = arrival.at_s + arrival.deadline_s
        request = Request(
            self.line,
            calls.layout(arrival.rows),
            (payload,),
            rows=arrival.rows,
            deadline=None if deadline == math.inf else deadline,
            received_at=arrival.at_s,
            parsed_at=now,
            on_end=self._on_end,
            tag=(ending, payload),
            priority=arrival.priority,
            timeout_s=arrival.timeout_s,
            source=arrival.source,
        )
        try:
            self.scheduler.submit(request, now)
        except HeadraceError as error:
            self._end(ending, error)
        else:
            self.requests.append(request)
            self._spend(self._host.accept_s)
            if arrival.cancelled_s < math.inf:
                cancelled_s = max(arrival.at_s + arrival.cancelled_s - now, 0.0)
                self.at(cancelled_s, lambda: self.scheduler.cancel(request))

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
        ending.place, self._num_ended = self._num_ended, self._num_ended + 1

    def _spend(self, cost_s: float) -> None:
        """The host is busy: the device goes on, and nobody looks at it."""
        if cost_s:
            self.device.run_until(self.device.now + cost_s)
