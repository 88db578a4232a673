"""Runs a level on the fleet, and sums up what came of it."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType

from headrace_client.bench import machine
from headrace_client.bench.fleet import Fleet
from headrace_client.bench.level import Ended
from headrace_client.bench.plan import PlannedLevel
from headrace_client.bench.progress import Progress
from headrace_client.bench.record import Rows
from headrace_client.bench.server_side import ServerFigures, Statistics, difference
from headrace_client.bench.summary import Figures, figures
from headrace_client.bench.tally import Tally, step_of
from headrace_client.bench.verdict import ClientUse, Verdict, judge

GRACE_S = 1.0  # for what is in flight, after Ctrl-C
_TICK_S = 0.1


@dataclass(frozen=True)
class Outcome:
    """One level: what was asked, what the client saw, what the server counted.

    Attributes:
        kind: "closed" or "open".
        value: Concurrency, or requests a second.
        text: The load in words.
        was_interrupted: It ended before its time.
        seen: The client's figures.
        rows_per_s: Throughput, in rows.
        server: The server's figures; None: it gives none.
        outside_ms: What the mean answer took beyond the server's own count, from when it was sent:
            the network, gRPC on both sides, and waiting before the server looked at it.
        server_text: Why not.
        use: What the client took.
        verdict: Whether the client was the limit.
    """

    kind: str
    value: float
    text: str
    was_interrupted: bool
    seen: Figures
    rows_per_s: float
    server: ServerFigures | None
    outside_ms: float | None
    server_text: str
    use: ClientUse
    verdict: Verdict


class Interrupts:
    """Counts Ctrl-C (and SIGTERM); the second one ends the program as usual."""

    def __init__(self) -> None:
        self.count = 0

    @contextmanager
    def caught(self) -> Iterator[None]:
        """Count while the block runs; threads other than the main one have no signals."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._caught) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, action in before.items():
                signal.signal(number, action)

    def _caught(self, _number: int, _frame: FrameType | None) -> None:
        self.count += 1
        if self.count > 1:
            raise KeyboardInterrupt


_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass
class Conductor:
    """Runs levels one after another.

    Args:
        fleet: The workers.
        ask_statistics: Asks the server for its statistics, or says why there are none.
        progress: Shows what happens.
        interrupts: Tells when to stop.
        deadline_s: Of each request; None: every answer is good.
        num_sources: Who sends.
        flooding: Which of them sends more.
        rows: In each request.
        is_local: The server is on this machine.
    """

    fleet: Fleet
    ask_statistics: Callable[[], Statistics | str]
    progress: Progress
    interrupts: Interrupts
    deadline_s: float | None
    num_sources: int
    flooding: int | None
    rows: int
    is_local: bool
    _used: list[Ended] = field(default_factory=list)

    def run(self, planned: PlannedLevel) -> Outcome:
        """Run a level to its end, or to the first interrupt.

        Raises:
            WorkerError: A process could not do its work.
        """
        level = planned.level
        before = self.ask_statistics()  # without a warm-up the first request comes at once
        start_s = self.fleet.begin(level) + level.warm_up_s
        end_s = None if level.duration_s is None else start_s + level.duration_s
        tally = Tally(
            start_s,
            end_s,
            self.deadline_s,
            self.num_sources,
            is_open=planned.kind == "open",
            step_s=step_of(level.duration_s),
        )
        self.progress.begin(planned.text, start_s, level.duration_s)
        self._used = []
        if level.warm_up_s:
            self._gather(tally, start_s)
            before = self.ask_statistics()
        cores_before = machine.core_times()
        stopped_s = self._gather(tally, None)
        share = machine.busy_share(cores_before, machine.core_times())
        after = self.ask_statistics()
        seen = figures(tally, stopped_s, self.flooding)
        self.progress.end()
        return self._outcome(planned, seen, share, before, after)

    def _gather(self, tally: Tally, until_s: float | None) -> float:
        """Take in rows until then, or (None) until all workers are done; returns when it ended."""
        ended_s = 0.0
        while len(self._used) < self.fleet.size:
            now_s = time.monotonic()
            if until_s is not None and now_s >= until_s:
                break
            if self.interrupts.count and not ended_s:
                ended_s = now_s
                self.fleet.stop(GRACE_S)
            left_s = _TICK_S if until_s is None else min(_TICK_S, until_s - now_s)
            for answer in self.fleet.receive(left_s):
                if isinstance(answer, Rows):
                    tally.add(answer)
                    self.progress.add(answer)
                else:
                    self._used.append(answer)
            self.progress.show(time.monotonic())
        return ended_s or time.monotonic()

    def _outcome(
        self,
        planned: PlannedLevel,
        seen: Figures,
        machine_share: float | None,
        before: Statistics | str,
        after: Statistics | str,
    ) -> Outcome:
        used = [each for each in self._used if each.measured_s > 0]
        use = ClientUse(
            tuple(each.loop_cpu_s / each.measured_s for each in used),
            sum(each.process_cpu_s / each.measured_s for each in used),
            machine_share,
            self.is_local,
        )
        lag_s, latency_s = _seconds(seen.lag.p99_ms), _seconds(seen.latency.p99_ms)
        texts = [each for each in (before, after) if isinstance(each, str)]
        server = None
        if not isinstance(before, str) and not isinstance(after, str):
            server = difference(before, after)
        return Outcome(
            kind=planned.kind,
            value=planned.value,
            text=planned.text,
            was_interrupted=self.interrupts.count > 0,
            seen=seen,
            rows_per_s=seen.throughput_per_s * self.rows,
            server=server,
            outside_ms=_beyond(seen.service.mean_ms, server),
            server_text=texts[0] if texts else "",
            use=use,
            verdict=judge(use, lag_s, latency_s, seen.num_dropped),
        )


def _beyond(mean_ms: float | None, server: ServerFigures | None) -> float | None:
    if mean_ms is None or server is None or server.request_ms is None:
        return None
    return mean_ms - server.request_ms


def _seconds(milliseconds: float | None) -> float:
    return float("nan") if milliseconds is None else milliseconds / 1e3
