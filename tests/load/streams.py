"""What a message costs in a stream, beside a unary call: `python -m load.streams [MODEL]`.

Bare echoes of grpc.aio first, of both kinds, then headrace on each transport. One client process
with `grpc.aio`, on one connection, keeps so many messages in flight: in unary calls, or in streams.
Figures are medians over rounds; CPU is the server's, user and system.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import grpc
import grpc.aio
import uvloop

from helpers import process_tree
from helpers.raw_http2 import INFER
from helpers.stream_client import PATH
from load.grpc_client import OPTIONS, Load
from load.models import write_repository
from load.targets import Target, floor, headrace
from load.work import request

SERVERS = ("grpcio echo", "headrace grpcio", "headrace native")


class StreamCaller:
    """One stream with so many messages in flight."""

    def __init__(self, load: Load, call: Any, in_flight: int) -> None:
        self.load = load
        self.call = call
        self.room = asyncio.Semaphore(in_flight)

    async def run(self) -> None:
        """Send and read until the load is over and every reply has come."""
        sending = asyncio.create_task(self.send())
        while (reply := await self.call.read()) is not grpc.aio.EOF:
            self.room.release()
            if len(reply) == self.load.num_reply_bytes:
                self.load.latencies_s.append(0.0)
            else:
                self.load.failed += 1
        await sending

    async def send(self) -> None:
        while not self.load.is_over:
            await self.room.acquire()
            await self.call.write(self.load.message)
        await self.call.done_writing()


async def client(
    address: str, model: str, num_streams: int, in_flight: int, seconds: float
) -> None:
    """One measurement; without streams, of unary calls. Prints messages and seconds as JSON."""
    async with grpc.aio.insecure_channel(address, options=OPTIONS) as channel:
        message = request(model)
        if num_streams:
            first: Any = channel.stream_stream(PATH)()
            await first.write(message)
            load = Load(message, len(await first.read()))
            await first.done_writing()
            share = in_flight // num_streams
            calls: list[Any] = [channel.stream_stream(PATH)() for _ in range(num_streams)]
            callers = [asyncio.create_task(StreamCaller(load, c, share).run()) for c in calls]
        else:
            unary: Any = channel.unary_unary(INFER)
            load = Load(message, len(await unary(message)))
            callers = [asyncio.create_task(load.caller(unary)) for _ in range(in_flight)]
        started = time.perf_counter()
        await asyncio.sleep(seconds)
        load.is_over = True
        await asyncio.gather(*callers)
        took_s = time.perf_counter() - started
    print(json.dumps({"messages": len(load.latencies_s), "failed": load.failed, "s": took_s}))


def measure(
    target: Target, model: str, num_streams: int, in_flight: int, seconds: float
) -> tuple[float, float]:
    """(messages a second, microseconds of the server's CPU a message)."""
    before_s = process_tree.cpu_s(target.pid)
    arguments = ["--client", target.address, model, num_streams, in_flight, seconds]
    command = [sys.executable, "-m", "load.streams", *map(str, arguments)]
    seen = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    cpu_s = process_tree.cpu_s(target.pid) - before_s
    if seen["failed"]:
        raise ValueError(f"{target.name}: {seen['failed']} messages failed")
    return seen["messages"] / seen["s"], cpu_s / seen["messages"] * 1e6


def main(arguments: Sequence[str]) -> int:
    """Measure round by round, and print one line for each server and kind of call."""
    parser = argparse.ArgumentParser(prog="load.streams", description=__doc__.partition("\n")[0])
    parser.add_argument("model", nargs="?", default="identity_64b")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--in-flight", type=int, default=16)
    chosen = parser.parse_args(arguments)
    seen: dict[tuple[str, int], list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        repository = write_repository(Path(folder), [chosen.model])
        targets = [
            stack.enter_context((floor if name.endswith("echo") else headrace)(name, repository))
            for name in SERVERS
        ]
        for _ in range(chosen.rounds):
            for target in targets:
                for num_streams in (0, 1, 4):
                    figures = measure(
                        target, chosen.model, num_streams, chosen.in_flight, chosen.seconds
                    )
                    seen.setdefault((target.name, num_streams), []).append(figures)
    print(f"{chosen.model}, {chosen.in_flight} messages in flight on one connection")
    print("server | calls | messages/s | CPU us/message")
    for (name, num_streams), rounds in seen.items():
        kind = f"{num_streams} stream{'s' if num_streams > 1 else ''}" if num_streams else "unary"
        rate, cpu_us = (median(column) for column in zip(*rounds, strict=True))
        print(f"{name} | {kind} | {rate:,.0f} | {cpu_us:.0f}")
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--client"]:
        server, name, streams, flight, duration = sys.argv[2:]
        uvloop.run(client(server, name, int(streams), int(flight), float(duration)))
    else:
        sys.exit(main(sys.argv[1:]))
