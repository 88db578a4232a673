"""A process that sends requests: ``python -m headrace_client.bench.worker DESCRIPTOR``.

It is told its job and then levels over the pipe with this descriptor, and answers with what became
of the requests. It ends when the pipe does.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import importlib.util
import sys
import time
from collections.abc import Coroutine
from multiprocessing.connection import Connection
from typing import Any

import grpc
import grpc.aio

from headrace_client.bench import loops
from headrace_client.bench.alarm import exact_alarm
from headrace_client.bench.level import ClosedLoop, Ended, Failed, Job, OpenLoop, Ready, Run
from headrace_client.bench.pipe import Pipe
from headrace_client.bench.record import Record
from headrace_client.bench.sender import Call, Sender
from headrace_client.bench.wakeups import never_block_wakeups
from headrace_client.settings import Settings
from headrace_proto.service import METHODS

INFER = METHODS["ModelInfer"].path
FLUSH_S = 0.25


def main() -> None:
    """Work until the pipe is closed."""
    with Connection(int(sys.argv[1])) as connection:
        job: Job = connection.recv()
        _run(_serve(connection, job))


def event_loop_name() -> str:
    """Return which event loop workers run on: uvloop where it is installed."""
    return "uvloop" if importlib.util.find_spec("uvloop") else "asyncio"


def _run(main: Coroutine[Any, Any, None]) -> None:
    if event_loop_name() == "uvloop":
        import uvloop

        uvloop.run(main, debug=False)
    else:
        asyncio.run(main, debug=False)


async def _serve(connection: Connection, job: Job) -> None:
    never_block_wakeups()
    pipe = Pipe(connection)
    channels = [_open_channel(job.settings) for _ in range(job.num_connections)]
    try:
        await asyncio.wait_for(
            asyncio.gather(*(channel.channel_ready() for channel in channels)),
            job.settings.deadline_s(None),
        )
        calls = [_call(channel, job) for channel in channels]
        gc.collect()
        gc.freeze()
        pipe.answer(Ready())
        await _obey(pipe, job, calls)
    except TimeoutError:
        pipe.answer(Failed(f"no connection within {job.settings.timeout_s} s"))
    finally:
        for channel in channels:
            await channel.close()
        pipe.flush()


def _open_channel(settings: Settings) -> grpc.aio.Channel:
    options = [
        *settings.options(),
        ("grpc.use_local_subchannel_pool", 1),  # else equal channels share one connection
        ("grpc.enable_retries", 0),  # what a server refuses is to be seen
    ]
    if settings.tls is None:
        return grpc.aio.insecure_channel(settings.url, options)
    return grpc.aio.secure_channel(settings.url, settings.tls.credentials(), options)


def _call(channel: grpc.aio.Channel, job: Job) -> Call:
    # Without (de)serializers grpc passes bytes through.
    call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(INFER)
    metadata = job.settings.metadata or None
    return functools.partial(call, timeout=job.timeout_s, metadata=metadata)


async def _obey(pipe: Pipe, job: Job, calls: list[Call]) -> None:
    level: LevelRun | None = None
    doing: asyncio.Task[None] | None = None
    while (order := await pipe.order()) is not None:
        if isinstance(order, Run):
            level = LevelRun(pipe, job, calls, order)
            doing = asyncio.create_task(_do(level, pipe))
        elif level is not None:
            level.stop(order.grace_s)
    if doing is not None:
        doing.cancel()


async def _do(level: LevelRun, pipe: Pipe) -> None:
    try:
        await level.run()
    except Exception as error:
        pipe.answer(Failed(f"{type(error).__name__}: {error}"))
        raise


class LevelRun:
    """One level in one worker, from its start to its last answer."""

    def __init__(self, pipe: Pipe, job: Job, calls: list[Call], order: Run) -> None:
        level = order.level
        self._pipe, self._job, self._level, self._start_s = pipe, job, level, order.start_s
        self._counts_from_s = order.start_s + level.warm_up_s
        self._end_s = None if level.duration_s is None else self._counts_from_s + level.duration_s
        share = None if level.num_requests is None else job.share_of(level.num_requests)
        self._gate = loops.Gate(self._counts_from_s, self._end_s, share)
        self._record = Record()
        self._sender = Sender(
            calls, job.messages, self._record, time.monotonic, self._counts_from_s
        )
        self._make_alarm = functools.partial(exact_alarm, asyncio.get_running_loop())
        self._stopped = asyncio.Event()
        self._grace_s: float | None = None

    def stop(self, grace_s: float) -> None:
        """End early, and wait this long for what is in flight."""
        self._grace_s = grace_s
        self._gate.close()
        self._stopped.set()

    async def run(self) -> None:
        """Do it, and tell what became of the requests while it runs and at its end."""
        flushing = asyncio.create_task(self._flush())
        stopped = asyncio.create_task(self._stopped.wait())
        load = asyncio.create_task(self._load())
        try:
            await _wait(self._counts_from_s, load, stopped)
            before = _usage()
            await _wait(self._end_s, load, stopped)
            used = _usage() - before
            await _wait(None, load, stopped)
            await asyncio.wait({load}, timeout=self._grace_s)
        finally:
            load.cancel()
            await asyncio.gather(load, return_exceptions=True)
            await self._sender.finish(0)
            flushing.cancel()
            stopped.cancel()
        self._send_rows()
        self._pipe.answer(used)

    async def _load(self) -> None:
        await asyncio.sleep(self._start_s - time.monotonic())
        match self._level.load:
            case ClosedLoop(concurrency, turns):
                first = self._job.index * len(turns) // self._job.num_workers
                probe = loops.Probe(
                    self._record, self._counts_from_s, time.monotonic, self._make_alarm
                )
                try:
                    await loops.closed_loop(
                        self._sender,
                        self._gate,
                        self._job.share_of(concurrency),
                        [*turns[first:], *turns[:first]],
                        time.monotonic,
                    )
                finally:
                    probe.close()
            case OpenLoop(schedule, max_in_flight):
                await loops.OpenLoop(
                    self._sender,
                    self._gate,
                    loops.due_requests(
                        schedule, self._start_s, self._job.index, self._job.num_workers
                    ),
                    max_in_flight=self._job.share_of(max_in_flight),
                    clock=time.monotonic,
                    make_alarm=self._make_alarm,
                ).run()
                await self._sender.finish(None)

    async def _flush(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_S)
            self._send_rows()

    def _send_rows(self) -> None:
        rows = self._record.take()
        if rows is not None:
            self._pipe.answer(rows)


async def _wait(
    until_s: float | None, load: asyncio.Task[None], stopped: asyncio.Task[Any]
) -> None:
    """Wait until then, or (None) until the load is over; a stop and a failure end it at once."""
    timeout_s = None if until_s is None else max(0.0, until_s - time.monotonic())
    await asyncio.wait({load, stopped}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    if load.done():
        load.result()
        if until_s is not None:
            await asyncio.wait({stopped}, timeout=max(0.0, until_s - time.monotonic()))


def _usage() -> Ended:
    """Return what was used so far, by this thread and by all."""
    return Ended(time.monotonic(), time.thread_time(), time.process_time())


if __name__ == "__main__":
    main()
