"""Reads a trace that headrace wrote, and sums it up: how much of the copies was hidden."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from headrace.errors import ConfigError
from headrace.timeline.events import LANE, LANES, REQUEST
from headrace.timeline.overlap import Overlap, Span, overlap

US_S: Final = 1e-6


@dataclass(frozen=True, slots=True)
class Summary:
    """What a trace tells.

    Attributes:
        num_requests: Requests in it.
        wall_s: From the first event to the last.
        stage_s: Mean time in each stage, in the order of the trace.
        work: What the device did, and how much of it at once.
        num_lanes: Lanes that appear.
        is_sampled: Whether requests are missing from it: then shares are lower bounds.
    """

    num_requests: int
    wall_s: float
    stage_s: dict[str, float]
    work: Overlap
    num_lanes: int
    is_sampled: bool


def read_trace(path: Path) -> Summary:
    """Read and sum up a file.

    Raises:
        ConfigError: It is not a trace of headrace's.
    """
    return read_events(path)[1]


def read_events(path: Path) -> tuple[list[dict[str, Any]], Summary]:
    """Read a file; return its events and their sum.

    Raises:
        ConfigError: It is not a trace of headrace's.
    """
    try:
        trace = json.loads(path.read_text("utf-8"))
        events: list[dict[str, Any]] = trace["traceEvents"]
        sampled = str(trace["otherData"]["sampled"])
        return events, summed_up(events, is_sampled=not sampled.startswith("1 of 1 "))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"is not a trace that headrace wrote ({type(error).__name__}: {error})", path=str(path)
        ) from error


def spans_of(events: Iterable[dict[str, Any]]) -> list[Span]:
    """Return what the lanes did; the two lanes of one slot never hide each other's copies."""
    return [
        Span(
            f"{event['pid']}/{(event['tid'] - 1) // LANES}",
            event["name"],
            event["ts"] * US_S,
            (event["ts"] + event["dur"]) * US_S,
        )
        for event in events
        if event["ph"] == "X" and event.get("cat") == LANE
    ]


def summed_up(events: list[dict[str, Any]], *, is_sampled: bool) -> Summary:
    """Sum up the events of a trace."""
    times_s = [event["ts"] * US_S for event in events if "ts" in event]
    num_stages: Counter[str] = Counter()
    stage_s: dict[str, float] = {}
    for event in events:
        if event.get("cat") == REQUEST:
            sign = 1 if event["ph"] == "e" else -1
            name = event["name"]
            stage_s[name] = stage_s.get(name, 0.0) + sign * event["ts"] * US_S
            num_stages[name] += event["ph"] == "e"
    return Summary(
        num_requests=num_stages[REQUEST],
        wall_s=max(times_s) - min(times_s) if times_s else 0.0,
        stage_s={name: total / num_stages[name] for name, total in stage_s.items()},
        work=overlap(spans_of(events)),
        num_lanes=len({(event["pid"], event["tid"]) for event in events if event["ph"] == "X"}),
        is_sampled=is_sampled,
    )
