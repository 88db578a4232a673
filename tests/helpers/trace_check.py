"""Holds traces to the rules of the format: what a viewer needs to draw them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

STAGES = ("receive", "stage", "queue", "h2d", "execute", "d2h", "reply")
Times = dict[str, tuple[float, float]]  # stage → begin and end, microseconds


def requests_of(events: Iterable[dict[str, Any]]) -> dict[tuple[int, str], Times]:
    """(process, id) → the stages of that request in the order of their begin."""
    found: dict[tuple[int, str], Times] = defaultdict(dict)
    open_at: dict[tuple[int, str, str], float] = {}
    for event in events:
        if event.get("cat") != "request":
            continue
        key = (event["pid"], event["id"])
        if event["ph"] == "b":
            assert event["name"] not in found[key], f"{event['name']} begins twice"
            found[key][event["name"]] = (event["ts"], event["ts"])
            open_at[*key, event["name"]] = event["ts"]
        else:
            assert event["ph"] == "e"
            found[key][event["name"]] = (open_at.pop((*key, event["name"])), event["ts"])
    assert not open_at, f"never ended: {open_at}"
    return dict(found)


def check_trace(events: list[dict[str, Any]]) -> None:
    """Fails where spans are not nested, overlap on a lane, or lie on a track without a name."""
    _check_requests(events)
    _check_lanes(events)
    named = {(event["pid"], event["tid"]) for event in events if event["name"] == "thread_name"}
    used = {(event["pid"], event["tid"]) for event in events if event["ph"] == "X"}
    assert used <= named
    processes = {event["pid"] for event in events if event["name"] == "process_name"}
    assert {event["pid"] for event in events} <= processes


def _check_requests(events: list[dict[str, Any]]) -> None:
    for stages in requests_of(events).values():
        begin, end = stages["request"]
        at = begin
        names = [name for name in stages if name != "request"]
        assert names == [name for name in STAGES if name in names]
        for name in names:
            start, stop = stages[name]
            assert at <= start <= stop <= end, f"{name} is not in its place: {stages}"
            at = stop
        assert stages["reply"][1] == end


def _check_lanes(events: list[dict[str, Any]]) -> None:
    lanes: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            assert event["dur"] >= 0
            lanes[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for spans in lanes.values():
        spans.sort()
        for one, other in pairwise(spans):
            assert one[1] <= other[0] + 0.002, f"a lane does two things at once: {one} {other}"
