"""A request's events lie in order and inside each other, whatever the clocks are off."""

from __future__ import annotations

from math import isnan, nan
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace.timeline.events import Record, Tracks
from headrace.timeline.overlap import Span
from headrace.timeline.trace import spans_of, summed_up
from helpers.trace_check import check_trace, requests_of

durations = st.floats(0, 10, allow_subnormal=False)


@st.composite
def records(draw: st.DrawFn) -> Record:
    """Any request: the host's times in order, the device's anywhere near them."""
    at = draw(st.floats(0, 1000))
    times = [at := at + draw(durations) for _ in range(4)]
    has_copies = draw(st.booleans())
    device = [draw(durations) if has_copies else nan, draw(durations)]
    device.append(draw(durations) if has_copies else nan)
    ended_at = at + sum(each for each in device if not isnan(each))
    return Record(
        number=draw(st.integers(0, 1000)),
        model=draw(st.sampled_from(["a version 1", "b version 2"])),
        slot=draw(st.integers(0, 15)),
        lane=draw(st.integers(0, 1)),
        rows=1,
        received_at=times[0],
        parsed_at=times[1],
        staged_at=times[2],
        started_at=times[3],
        begun_at=at + draw(st.floats(-1, 1)),
        h2d_s=device[0],
        execute_s=device[1],
        d2h_s=device[2],
        ended_at=ended_at,
        replied_at=ended_at + draw(durations),
    )


@given(records())
def test_stages_are_nested_and_in_order(record: Record) -> None:
    """Every stage that was measured is there once, and none begins before the last one ended."""
    events = list(Tracks().events(record, 0.0))
    check_trace(events)
    (request,) = requests_of(events).values()
    device = ["h2d", "execute", "d2h"] if not isnan(record.h2d_s) else ["execute"]
    assert list(request) == ["request", "receive", "stage", "queue", *device, "reply"]
    spans: list[Span] = spans_of(events)
    assert [span.name for span in spans] == device


def test_tracks_are_named_once() -> None:
    """A process for each model, a thread for each lane."""
    tracks = Tracks()
    first = Record(0, "m version 1", 3, 1, 4, 1, 2, 3, 4, 5, 0.5, 1.0, 0.25, 7, 8)
    events: list[dict[str, Any]] = [
        event
        for record in (first, first._replace(number=1), first._replace(model="n version 2"))
        for event in tracks.events(record, 1.0)
    ]
    named = [
        (each["name"], each["pid"], each["args"]["name"]) for each in events if "ts" not in each
    ]
    assert named == [
        ("process_name", 1, "m version 1"),
        ("thread_name", 1, "slot 3 lane 1"),
        ("process_name", 2, "n version 2"),
        ("thread_name", 2, "slot 3 lane 1"),
    ]
    lane = [(each["name"], each["ts"], each["dur"]) for each in events if each["ph"] == "X"]
    assert lane[:3] == [("h2d", 4e6, 5e5), ("execute", 4.5e6, 1e6), ("d2h", 5.5e6, 2.5e5)]
    assert events[2]["args"] == {"request": 0, "rows": 4}


def test_what_ran_together_is_drawn_once_on_its_lane() -> None:
    """The next batch of the lane is another one; each request has all its stages."""
    tracks = Tracks()
    first = Record(0, "m version 1", 0, 0, 2, 0, 0, 0, 1, 1, nan, 1.0, nan, 2, 3, batch_rows=5)
    second = first._replace(number=1, rows=3)
    later = first._replace(number=2, started_at=2, begun_at=2, ended_at=3, batch_rows=2)
    events = [each for record in (first, second, later) for each in tracks.events(record, 0.0)]
    lane = [(each["ts"], each["args"]) for each in events if each["ph"] == "X"]
    assert lane == [(1e6, {"request": 0, "rows": 5}), (2e6, {"request": 2, "rows": 2})]
    rows = [each["args"] for each in events if each["name"] == "request" and each["ph"] == "b"]
    assert rows == [
        {"request": 0, "rows": 2, "batch_rows": 5},
        {"request": 1, "rows": 3, "batch_rows": 5},
        {"request": 2, "rows": 2},
    ]
    assert all("execute" in request for request in requests_of(events).values())


def test_the_sum_of_a_trace() -> None:
    """Two slots: the copy of the second lies half under the compute of the first."""
    tracks = Tracks()
    one = Record(0, "m version 1", 0, 0, 1, 0, 0, 0, 0, 0, nan, 4.0, nan, 4, 5)
    two = Record(1, "m version 1", 1, 0, 1, 2, 2, 2, 3, 3, 2.0, 1.0, nan, 6, 7)
    events = [event for each in (one, two) for event in tracks.events(each, 0.0)]
    summary = summed_up(events, is_sampled=False)
    assert summary.num_requests == 2
    assert summary.num_lanes == 2
    assert summary.wall_s == 7
    assert summary.work.hidden_share == 0.5
    assert summary.stage_s == {
        "request": 5.0,
        "receive": 0.0,
        "stage": 0.0,
        "queue": 0.5,
        "execute": 2.5,
        "reply": 1.0,
        "h2d": 2.0,
    }
