"""From options to levels of load: what is run, checked before anything is sent."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from headrace_client.bench import machine
from headrace_client.bench.level import ClosedLoop, Level, OpenLoop
from headrace_client.bench.notation import Flood
from headrace_client.bench.replay import read_intervals, read_replay
from headrace_client.bench.schedule import (
    Bursts,
    Constant,
    Poisson,
    Schedule,
    source_rates,
    turns,
)
from headrace_client.bench.usage import UsageError

DURATION_S = 10.0
MAX_SOURCES = 10_000
# About half of what one process can do with small messages (docs/bench.md).
_RATE_OF_PROCESS = 2500.0
_CALLERS_OF_PROCESS = 32
_MAX_PROCESSES = 16
_CONNECTIONS_OF_PROCESS = 4


@dataclass(frozen=True)
class PlannedLevel:
    """A level and how to speak of it.

    Args:
        level: What is run.
        kind: "closed" or "open".
        value: Concurrency, or mean requests a second.
        text: Such as "closed loop, 8 in flight".
    """

    level: Level
    kind: str
    value: float
    text: str


def levels(arguments: argparse.Namespace) -> list[PlannedLevel]:
    """Return what the options ask for, in order.

    Raises:
        UsageError: They contradict each other, or a file cannot be read.
    """
    _check(arguments)
    return list(_closed(arguments) if _is_closed(arguments) else _open(arguments))


def num_processes(planned: Sequence[PlannedLevel], wanted: int | None) -> int:
    """Return how many processes send: as asked, else by the load, and at most half of the cores."""
    callers = max(int(each.value) if each.kind == "closed" else MAX_SOURCES for each in planned)
    if wanted is None:
        by_load = max(
            each.value / (_CALLERS_OF_PROCESS if each.kind == "closed" else _RATE_OF_PROCESS)
            for each in planned
        )
        wanted = min(math.ceil(by_load), max(1, machine.num_cores() // 2), _MAX_PROCESSES)
    return max(1, min(wanted, callers))


def num_connections(planned: Sequence[PlannedLevel], processes: int, wanted: int | None) -> int:
    """Return how many connections each process opens."""
    if wanted is not None:
        return math.ceil(wanted / processes)
    callers = max(each.value if each.kind == "closed" else math.inf for each in planned)
    return min(_CONNECTIONS_OF_PROCESS, math.ceil(min(callers, 1e9) / processes))


def _is_closed(arguments: argparse.Namespace) -> bool:
    return not (
        arguments.rate
        or arguments.rate_per_source
        or arguments.replay
        or arguments.request_intervals
    )


def _check(arguments: argparse.Namespace) -> None:
    ways = {
        "--concurrency": arguments.concurrency,
        "--rate": arguments.rate,
        "--rate-per-source": arguments.rate_per_source,
        "--replay": arguments.replay,
        "--request-intervals": arguments.request_intervals,
    }
    chosen = [name for name, value in ways.items() if value]
    if len(chosen) > 1:
        raise UsageError(f"{' and '.join(chosen)}: choose one way to put load on the server")
    if _is_closed(arguments) and arguments.bursts:
        raise UsageError("--bursts needs --rate: a closed loop has no schedule")
    if arguments.sources > MAX_SOURCES:
        raise UsageError(f"--sources {arguments.sources}: at most {MAX_SOURCES}")
    flood: Flood | None = arguments.flood
    if flood is not None and (arguments.sources < 2 or flood.source >= arguments.sources):
        raise UsageError(
            f"--flood {flood.source}:{flood.factor:g}: expected a source below --sources, "
            f"and at least 2 of them; there are {arguments.sources}"
        )


def _level(arguments: argparse.Namespace, load: ClosedLoop | OpenLoop) -> Level:
    is_endless = not (isinstance(load, OpenLoop) and arguments.replay)
    duration_s = arguments.duration_s
    if duration_s is None and arguments.requests is None and is_endless:
        duration_s = DURATION_S
    warm_up_s = arguments.warm_up_s if is_endless else 0.0
    return Level(load, warm_up_s, duration_s, arguments.requests)


def _closed(arguments: argparse.Namespace) -> Iterator[PlannedLevel]:
    order = turns(source_rates(1.0, arguments.sources, arguments.flood))
    for concurrency in arguments.concurrency or [1]:
        level = _level(arguments, ClosedLoop(concurrency, order))
        text = f"closed loop, {concurrency} in flight"
        yield PlannedLevel(level, "closed", concurrency, text)


def _open(arguments: argparse.Namespace) -> Iterator[PlannedLevel]:
    for schedule, text in _schedules(arguments):
        level = _level(arguments, OpenLoop(schedule, arguments.max_in_flight))
        yield PlannedLevel(level, "open", schedule.rate, f"open loop, {text}")


def _schedules(arguments: argparse.Namespace) -> Iterator[tuple[Schedule, str]]:
    if arguments.replay:
        yield read_replay(arguments.replay, arguments.sources), f"as in {arguments.replay.name}"
        return
    if arguments.request_intervals:
        path = arguments.request_intervals
        yield read_intervals(path, arguments.sources), f"intervals of {path.name}"
        return
    rates: Sequence[float] = arguments.rate or [
        rate * arguments.sources for rate in arguments.rate_per_source
    ]
    for rate in rates:
        schedule = _process(arguments, rate)
        pauses = ""
        if arguments.bursts:
            on_s, off_s = arguments.bursts
            pauses = f", in bursts of {on_s:g} s every {on_s + off_s:g} s"
        flood = f", {schedule.rate:,.6g}/s with the flood" if arguments.flood else ""
        yield schedule, f"{arguments.arrivals} at {rate:,.6g}/s{flood}{pauses}"


def _process(arguments: argparse.Namespace, rate: float) -> Schedule:
    stretch = sum(arguments.bursts) / arguments.bursts[0] if arguments.bursts else 1.0
    rates = source_rates(rate * stretch, arguments.sources, arguments.flood)
    schedule: Schedule
    if arguments.arrivals == "poisson":
        schedule = Poisson(rates, arguments.seed)
    else:
        random = np.random.default_rng(arguments.seed)
        phases = random.random(len(rates)) if len(rates) > 1 else np.zeros(1)
        schedule = Constant(rates, phases)
    return Bursts(schedule, *arguments.bursts) if arguments.bursts else schedule
