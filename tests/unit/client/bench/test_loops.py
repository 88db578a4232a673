"""Closed and open loop against a server in virtual time: what counts from when."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

import grpc
import grpc.aio
import numpy as np
import pytest

from headrace_client.bench.alarm import LoopTimer
from headrace_client.bench.level import Messages
from headrace_client.bench.loops import Gate, OpenLoop, Probe, closed_loop, due_requests
from headrace_client.bench.record import DROPPED, OK, UNFINISHED, Record, Rows
from headrace_client.bench.schedule import Constant, Schedule
from headrace_client.bench.sender import Sender
from helpers.virtual_loop import VirtualLoop, run_virtually

CODE = grpc.StatusCode
SERVICE_S = 0.001


class Server:
    """Answers after a millisecond, but for a time in which it stands still; refuses on request."""

    def __init__(self, stall_s: tuple[float, float] = (0, 0)) -> None:
        self.stall_s = stall_s
        self.refuse: Callable[[bytes], bool] = lambda _: False
        self.requests: list[bytes] = []

    async def infer(self, request: bytes) -> bytes:
        self.requests.append(request)
        now_s = asyncio.get_running_loop().time()
        begin_s, end_s = self.stall_s
        await asyncio.sleep(SERVICE_S + (end_s - now_s if begin_s <= now_s < end_s else 0))
        if self.refuse(request):
            nothing = grpc.aio.Metadata()
            raise grpc.aio.AioRpcError(CODE.UNAVAILABLE, nothing, nothing, "queue is 17 long")
        return b"reply"


class Rig:
    """A sender to a server, on the running virtual loop."""

    def __init__(self, server: Server, tails: Sequence[bytes] = (b"",)) -> None:
        self.loop = cast("VirtualLoop", asyncio.get_running_loop())
        self.record = Record()
        self.sender = Sender([server.infer], Messages(b"base", tails), self.record, self.loop.time)
        self.make_alarm = partial(LoopTimer, self.loop, clock=self.loop.time)

    async def open(
        self, schedule: Schedule, gate: Gate, *, max_in_flight: int = 10_000, start_s: float = 0.0
    ) -> Rows:
        await OpenLoop(
            self.sender,
            gate,
            due_requests(schedule, start_s, 0, 1),
            max_in_flight=max_in_flight,
            clock=self.loop.time,
            make_alarm=self.make_alarm,
        ).run()
        await self.sender.finish(None)
        return self.rows()

    async def closed(self, gate: Gate, num_callers: int, turns: Sequence[int] = (0,)) -> Rows:
        await closed_loop(self.sender, gate, num_callers, turns, self.loop.time)
        return self.rows()

    def rows(self) -> Rows:
        rows = self.record.take()
        assert rows is not None
        return rows


def every(seconds: float) -> Constant:
    return Constant(np.array([1 / seconds]), np.zeros(1))


def test_a_stall_shows_in_an_open_loop() -> None:
    """A server stands still for 1 s of 10: a tenth of the requests are charged what they waited.

    A closed loop sees one slow request, and nothing in its p99: therefore the open loop.
    """

    async def both() -> tuple[Rows, Rows]:
        stall_s = (4.0, 5.0)
        opened = await Rig(Server(stall_s)).open(every(0.01), Gate(0, 10, None))
        loop = asyncio.get_running_loop()
        begin_s = loop.time()
        later = Server((begin_s + 4.0, begin_s + 5.0))
        closed = await Rig(later).closed(Gate(begin_s, begin_s + 10, None), num_callers=1)
        return opened, closed

    opened, closed = run_virtually(both())
    latency_s = opened.done_s - opened.due_s
    assert len(latency_s) == 1000
    assert np.quantile(latency_s, 0.99) == pytest.approx(0.9, abs=0.02)
    assert latency_s.max() == pytest.approx(1 + SERVICE_S, abs=0.01)
    slow = latency_s[latency_s > 2 * SERVICE_S]
    assert len(slow) == 100
    assert np.sort(slow) == pytest.approx(np.arange(1, 101) / 100 + SERVICE_S, abs=0.01)
    seen_s = closed.done_s - closed.due_s
    assert np.quantile(seen_s, 0.99) < 2 * SERVICE_S
    assert (seen_s > 0.5).sum() == 1


def test_a_late_generator_is_seen() -> None:
    """What was due while the event loop was away is sent late, and latency counts from when due."""

    async def run() -> Rows:
        rig = Rig(Server())
        # As a loop that is busy with something else from 1.0 to 1.5.
        rig.loop.call_at(1.0, lambda: setattr(rig.loop.selector, "now", 1.5))
        return await rig.open(every(0.01), Gate(0, 2, None))

    rows = run_virtually(run())
    lag_s = rows.sent_s - rows.due_s
    assert len(lag_s) == 200
    late = (rows.due_s > 1.0) & (rows.due_s < 1.5)
    assert lag_s[late] == pytest.approx(1.5 - rows.due_s[late], abs=1e-6)
    assert lag_s[rows.due_s < 0.99] == pytest.approx(0, abs=1e-6)
    assert (rows.done_s - rows.due_s)[late].max() == pytest.approx(0.49 + SERVICE_S, abs=1e-6)
    assert (rows.codes == OK).all()


def test_what_is_a_second_late_is_not_sent() -> None:
    """It is written down as dropped: a backlog of the client's own must neither grow nor hide."""

    async def run() -> tuple[Rows, int]:
        server = Server()
        rig = Rig(server)
        rig.loop.call_at(1.0, lambda: setattr(rig.loop.selector, "now", 4.0))
        rows = await rig.open(every(0.01), Gate(0, 5, None))
        return rows, len(server.requests)

    rows, num_sent = run_virtually(run())
    dropped = rows.due_s[rows.codes == DROPPED]
    assert dropped.min() == pytest.approx(1.01, abs=0.011)
    assert dropped.max() == pytest.approx(2.99, abs=0.011)
    assert len(rows.codes) == 500
    assert num_sent == 500 - len(dropped)


def test_too_many_in_flight_are_dropped() -> None:
    """The bound holds, and each request that it keeps back is written down."""

    async def run() -> Rows:
        rig = Rig(Server(stall_s=(0.0, 1.0)))
        return await rig.open(every(0.01), Gate(0, 1.5, None), max_in_flight=20)

    rows = run_virtually(run())
    assert (rows.codes == DROPPED).sum() == 81  # due from 0.2 to 1.0, when the first is answered
    assert (rows.due_s[rows.codes == DROPPED] >= 0.2 - 1e-9).all()
    assert (rows.codes == OK).sum() == 69


def test_a_number_of_requests() -> None:
    """Counted from the end of the warm-up, in both loops."""

    async def run() -> tuple[Rows, Rows]:
        opened = await Rig(Server()).open(every(0.1), Gate(1.0, None, 25))
        now_s = asyncio.get_running_loop().time()
        return opened, await Rig(Server()).closed(Gate(now_s + 1, None, 7), num_callers=3)

    opened, closed = run_virtually(run())
    assert (opened.due_s < 1.0 - 1e-9).sum() == 10
    assert len(opened.due_s) == 35
    measured = closed.due_s - closed.due_s.min() >= 1.0 - 1e-9
    assert measured.sum() == 7


def test_the_last_request_ends_an_open_loop() -> None:
    """Nobody waits until the next one would be due."""

    async def run() -> float:
        await Rig(Server()).open(every(10), Gate(0, None, 2))
        return asyncio.get_running_loop().time()

    assert run_virtually(run()) == pytest.approx(10 + SERVICE_S, abs=1e-6)


def test_callers_take_sources_in_turn() -> None:
    """Each request carries what its source puts behind it."""

    async def run() -> tuple[Rows, list[bytes]]:
        server = Server()
        rows = await Rig(server, (b"-a", b"-b", b"-c")).closed(Gate(0, None, 8), 2, (0, 1, 1, 2))
        return rows, server.requests

    rows, requests = run_virtually(run())
    assert np.bincount(rows.sources).tolist() == [2, 4, 2]
    assert requests == [b"base-a", b"base-b", b"base-b", b"base-c"] * 2


def test_refusals_are_counted_by_code_and_text() -> None:
    """A refused request has its code and its time; texts are told apart but for their numbers."""

    async def run() -> Rows:
        server = Server()
        server.refuse = lambda _: len(server.requests) % 2 == 0
        return await Rig(server).closed(Gate(0, None, 10), 1)

    rows = run_virtually(run())
    unavailable = CODE.UNAVAILABLE.value[0]
    assert np.bincount(rows.codes).tolist()[:: int(unavailable)] == [5, 5]
    assert dict(rows.texts) == {(unavailable, "queue is … long"): 5}
    assert rows.reply_bytes == 5 * len(b"reply")


def test_breaking_off() -> None:
    """What is still in flight after the grace is cancelled, and written down as unfinished."""

    async def run() -> Rows:
        rig = Rig(Server(stall_s=(0.0, 60.0)))
        for number in range(5):
            rig.sender.start(float(number), 0)
        await rig.sender.finish(2.0)
        assert rig.loop.time() == pytest.approx(2.0)
        assert rig.sender.num_in_flight == 0
        return rig.rows()

    rows = run_virtually(run())
    assert rows.codes.tolist() == [UNFINISHED] * 5


def test_a_closed_gate_ends_both_loops() -> None:
    """After a stop nothing more is sent."""

    async def run() -> list[int]:
        numbers = []
        for kind in ("open", "closed"):
            server, gate = Server(), Gate(0, None, None)
            rig = Rig(server)
            start_s = rig.loop.time()
            rig.loop.call_at(start_s + 1, gate.close)
            if kind == "open":
                await rig.open(every(0.1), gate, start_s=start_s)
            else:
                await rig.closed(gate, 1)
            numbers.append(len(server.requests))
        return numbers

    opened, closed = run_virtually(run())
    assert opened in (10, 11)
    assert closed == pytest.approx(1 / SERVICE_S, abs=2)


def test_the_probe_sees_a_busy_loop() -> None:
    """A loop that was away for 80 ms is that late once, and on time before and after."""

    async def run() -> Rows:
        rig = Rig(Server())
        probe = Probe(rig.record, 0.5, rig.loop.time, rig.make_alarm)
        rig.loop.call_at(1.005, lambda: setattr(rig.loop.selector, "now", 1.085))
        await asyncio.sleep(2)
        probe.close()
        return rig.rows()

    lags_s = run_virtually(run()).lags_s
    assert lags_s.max() == pytest.approx(0.075, abs=0.0051)
    assert (lags_s > 0.001).sum() == 1
    assert len(lags_s) == pytest.approx(142, abs=2)
