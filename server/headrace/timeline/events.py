"""What a request did, as events of the trace format that Perfetto and Chrome read: pure.

A model is a process of the trace; each lane of its slots is a thread of that process, with what the
device did for the batches that requests of the sample were in: once for each batch, however many of
them there are. A request is a row of its own, with all its stages. Between `queue` and `h2d` the
request is on its stream, behind the slot's other lane.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isnan
from typing import Any, Final, NamedTuple

from headrace.scheduling.request import Request
from headrace.slots.batch import Placed

LANES: Final = 16  # more than any slot has: track numbers are slot * LANES + lane + 1
LANE, REQUEST = "lane", "request"  # categories

Event = dict[str, Any]


class Record(NamedTuple):
    """One request that ended: clock seconds and seconds, NaN for what was not measured."""

    number: int  # in the order of ending, over the requests that were sampled
    model: str
    slot: int
    lane: int
    rows: int
    received_at: float
    parsed_at: float
    staged_at: float
    started_at: float
    begun_at: float  # on the device
    h2d_s: float
    execute_s: float
    d2h_s: float
    ended_at: float  # seen to be done
    replied_at: float
    batch_rows: int = 0  # of all that ran together; 0 where it is the request's own


def record_of(request: Request, timing: Placed, number: int, replied_at: float) -> Record:
    """Note everything of a request at the moment when its reply has gone."""
    lane = timing.lane
    return Record(
        number,
        f"{request.line.model} version {request.line.metrics.version}",
        lane.slot.index,
        lane.slot.lanes.index(lane),
        request.rows,
        request.received_at,
        request.parsed_at,
        request.staged_at,
        timing.started_at,
        timing.begun_at,
        timing.h2d_s,
        timing.execute_s,
        timing.d2h_s,
        timing.ended_at,
        replied_at,
        request.batch_rows,
    )


class Tracks:
    """Gives processes and threads of the trace their numbers, and names them once."""

    def __init__(self) -> None:
        self._models: dict[str, int] = {}
        self._lanes: dict[tuple[int, int], float] = {}  # when the last batch shown left its queue

    def events(self, record: Record, zero: float) -> Iterator[Event]:
        """Yield the events of a request, those that name its tracks first.

        Args:
            record: The request.
            zero: Clock seconds that the trace begins at.
        """
        pid = self._models.get(record.model)
        if pid is None:
            pid = self._models[record.model] = len(self._models) + 1
            yield _name("process_name", pid, 0, record.model)
        tid = record.slot * LANES + record.lane + 1
        if (pid, tid) not in self._lanes:
            yield _name("thread_name", pid, tid, f"slot {record.slot} lane {record.lane}")
        if self._lanes.get((pid, tid)) != record.started_at:  # else it ran with one before it
            self._lanes[pid, tid] = record.started_at
            yield from _batch(record, zero, pid, tid)
        args = {"request": record.number, "rows": record.rows}
        if record.batch_rows > record.rows:
            args["batch_rows"] = record.batch_rows
        about = {"cat": REQUEST, "pid": pid, "tid": tid, "id": str(record.number)}
        begin, end = _us(record.received_at - zero), _us(record.replied_at - zero)
        yield {"name": REQUEST, "ph": "b", "ts": begin, "args": args, **about}
        for name, start, end_of_stage in _stages(record):
            yield {"name": name, "ph": "b", "ts": _us(start - zero), **about}
            yield {"name": name, "ph": "e", "ts": _us(end_of_stage - zero), **about}
        yield {"name": REQUEST, "ph": "e", "ts": end, **about}


def _batch(record: Record, zero: float, pid: int, tid: int) -> Iterator[Event]:
    """Yield what a lane did; its first request of the sample stands for the batch."""
    args = {"request": record.number, "rows": max(record.rows, record.batch_rows)}
    for name, start, end in _on_device(record):
        yield {
            "name": name,
            "cat": LANE,
            "ph": "X",
            "pid": pid,
            "tid": tid,
            "ts": _us(start - zero),
            "dur": round(_us(end - zero) - _us(start - zero), 3),
            "args": args,
        }


def _stages(record: Record) -> Iterator[tuple[str, float, float]]:
    """Yield name, start and end of every stage, in order, none before the one before has ended."""
    yield "receive", record.received_at, record.parsed_at
    yield "stage", record.parsed_at, record.staged_at
    yield "queue", record.staged_at, record.started_at
    yield from _on_device(record)
    yield "reply", record.ended_at, record.replied_at


def _on_device(record: Record) -> Iterator[tuple[str, float, float]]:
    """Yield what the device did.

    It lies between the enqueueing and the moment when it was seen to be done, and is moved there by
    what the anchor is off.
    """
    durations_s = [
        (name, duration_s)
        for name, duration_s in (
            ("h2d", record.h2d_s),
            ("execute", record.execute_s),
            ("d2h", record.d2h_s),
        )
        if not isnan(duration_s)
    ]
    latest = record.ended_at - sum(duration_s for _, duration_s in durations_s)
    at = max(record.started_at, min(record.begun_at, latest))
    for name, duration_s in durations_s:
        end = min(at + duration_s, record.ended_at)
        yield name, at, end
        at = end


def _name(kind: str, pid: int, tid: int, name: str) -> Event:
    return {"name": kind, "ph": "M", "pid": pid, "tid": tid, "args": {"name": name}}


def _us(seconds_s: float) -> float:
    return round(seconds_s * 1e6, 3)
