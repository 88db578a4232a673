"""Frames by shared memory against frames in messages: `python -m load.shm`.

One client process keeps so many calls of the identity model in flight. In messages it sends the
same bytes again and again; by shared memory it writes its frame into its region before each call,
as a camera would. Rates and CPU are medians over rounds, each round one measurement of every kind.

Then, once more for each kind, the host's copies of a frame are counted in the server: `copies.c` is
loaded before the C library and counts the bytes of pieces from 4 KiB on, by memcpy, sockets and
files. Needs a C compiler; without one, that part is left out and said to be.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import mmap
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import grpc
import grpc.aio
import uvloop

from helpers import process_tree
from helpers.messages import infer, tensor
from helpers.raw_http2 import INFER
from helpers.rpc_client import RpcClient
from helpers.server import NO_DEBUG, TRANSPORTS, serving
from helpers.shm_client import Memory, part, register
from load.grpc_client import OPTIONS, Load
from load.models import CATALOGUE, write_repository
from load.work import request

WAYS = ("message", "shared memory")
SERVER = ("--allow-client-shm", "--grpc-max-request-bytes", str(64 << 20))
COPIES = ("user", "socket in", "socket out", "file in", "file out")  # in the order of copies.c


class ShmLoad(Load):
    """Callers that each have a region for their frame and one for the answer."""

    def __init__(self, model: str, address: str, memories: Sequence[Memory]) -> None:
        self.frame = CATALOGUE[model].sample().tobytes()
        super().__init__(b"", 0)
        self.model = model
        self.mapped = [mmap.mmap(memory.fd, 2 * len(self.frame)) for memory in memories]
        with RpcClient(address) as client:
            for memory in memories:
                register(client, memory.key, memory.key, 2 * len(self.frame))
        self.messages = [self.request(memory.key) for memory in memories]

    def request(self, region: str) -> bytes:
        """A call from the first half of a region into its second."""
        size, x = len(self.frame), CATALOGUE[self.model]
        source = tensor("x", x.datatype, x.sample().shape, parameters=part(region, size))
        wanted = part(region, size, size)
        return infer(self.model, [source], outputs=["y"], output_parameters=wanted)

    async def shm_caller(self, call: Any, place: int) -> None:
        """Write the frame, call, again."""
        memory, size = self.mapped[place], len(self.frame)
        while not self.is_over:
            started = time.perf_counter()
            memory[:size] = self.frame
            await call(self.messages[place], timeout=60)
            self.latencies_s.append(time.perf_counter() - started)
        if memory[size:] != self.frame:
            self.failed += 1


async def client(address: str, way: str, model: str, callers: int, seconds: float) -> None:
    """One measurement; prints calls, failures, seconds and the client's CPU seconds as JSON."""
    size = len(CATALOGUE[model].sample().tobytes())
    with ExitStack() as stack:
        channels = [grpc.aio.insecure_channel(address, options=OPTIONS) for _ in range(4)]
        calls: list[Any] = [channel.unary_unary(INFER) for channel in channels]
        if way == "message":
            load = Load(request(model), len(await calls[0](request(model), timeout=60)))
            work = [load.caller(calls[place % 4]) for place in range(callers)]
        else:
            memories = [stack.enter_context(Memory(2 * size)) for _ in range(callers)]
            load = shm = ShmLoad(model, address, memories)
            work = [shm.shm_caller(calls[place % 4], place) for place in range(callers)]
        started, cpu_s = time.perf_counter(), time.process_time()
        tasks = [asyncio.create_task(each) for each in work]
        await asyncio.sleep(seconds)
        load.is_over = True
        await asyncio.gather(*tasks)
        took_s, cpu_s = time.perf_counter() - started, time.process_time() - cpu_s
        for channel in channels:
            await channel.close()
    figures = {"calls": len(load.latencies_s), "failed": load.failed, "s": took_s, "cpu_s": cpu_s}
    print(json.dumps(figures))


def measure(address: str, way: str, chosen: argparse.Namespace) -> dict[str, float]:
    """Run a client; what it printed."""
    arguments = (address, way, chosen.model, str(chosen.callers), str(chosen.seconds))
    command = [sys.executable, "-m", "load.shm", "--client", *arguments]
    seen: dict[str, float] = json.loads(
        subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
    )
    if seen["failed"]:
        raise ValueError(f"{way}: {seen['failed']} answers were wrong")
    return seen


def rates(repository: Path, chosen: argparse.Namespace) -> Iterator[str]:
    """Lines of the first table."""
    seen: dict[tuple[str, str], list[tuple[float, float, float]]] = {}
    with ExitStack() as stack:
        servers = {
            transport: stack.enter_context(serving(*arguments(repository, transport), env=NO_DEBUG))
            for transport in TRANSPORTS
        }
        for _ in range(chosen.rounds):
            for transport, server in servers.items():
                for way in WAYS:
                    before_s = process_tree.cpu_s(server.pid)
                    figures = measure(server.address, way, chosen)
                    cpu_s = process_tree.cpu_s(server.pid) - before_s
                    calls = figures["calls"]
                    row = (calls / figures["s"], cpu_s / calls, figures["cpu_s"] / calls)
                    seen.setdefault((transport, way), []).append(row)
    yield "transport | frames | calls/s | server CPU ms/call | client CPU ms/call"
    for (transport, way), rounds in seen.items():
        rate, server_s, client_s = (median(column) for column in zip(*rounds, strict=True))
        yield f"{transport} | {way} | {rate:,.0f} | {server_s * 1e3:.2f} | {client_s * 1e3:.2f}"


def copies(repository: Path, chosen: argparse.Namespace) -> Iterator[str]:
    """Lines of the second table: a call's bytes by kind of copy, as multiples of a frame."""
    compiler = shutil.which("cc")
    if compiler is None:
        yield "copies are not counted: there is no C compiler (cc)"
        return
    size = len(CATALOGUE[chosen.model].sample().tobytes())
    yield f"transport | frames | {' | '.join(COPIES)}  (frames a call)"
    with counting(compiler) as (environment, totals):
        for transport in TRANSPORTS:
            for way in WAYS:
                with serving(*arguments(repository, transport), env=environment) as server:
                    measure(server.address, way, chosen)  # what is allocated once
                    before = read(totals)
                    calls = measure(server.address, way, chosen)["calls"]
                    counts = [
                        after - early for after, early in zip(read(totals), before, strict=True)
                    ]
                shown = " | ".join(f"{count / calls / size:.2f}" for count in counts)
                yield f"{transport} | {way} | {shown}"


@contextmanager
def counting(compiler: str) -> Iterator[tuple[dict[str, str], Path]]:
    """Variables for a server whose copies are counted, and the file that has the totals."""
    with tempfile.TemporaryDirectory() as folder:
        library, totals = Path(folder, "copies.so"), Path(folder, "totals")
        source = Path(__file__).with_name("copies.c")
        flags = ("-O2", "-shared", "-fPIC", "-fno-builtin", "-o")
        subprocess.run([compiler, *flags, library, source, "-ldl"], check=True)
        totals.write_bytes(bytes(8 * len(COPIES)))
        yield {**NO_DEBUG, "LD_PRELOAD": str(library), "COPIES_FILE": str(totals)}, totals


def read(totals: Path) -> tuple[int, ...]:
    """The totals so far, in the order of COPIES."""
    return struct.unpack(f"={len(COPIES)}Q", totals.read_bytes())


def arguments(repository: Path, transport: str) -> tuple[str | Path, ...]:
    """Of a server."""
    return ("--model-repository", repository, "--transport", transport, *SERVER)


def main(argv: Sequence[str]) -> int:
    """Measure, and print both tables."""
    parser = argparse.ArgumentParser(prog="load.shm", description=__doc__.partition("\n")[0])
    parser.add_argument("model", nargs="?", default="identity_6mb")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--callers", type=int, default=8)
    chosen = parser.parse_args(argv)
    os.environ.setdefault("PYTHONPATH", str(Path(__file__).parents[1]))
    with tempfile.TemporaryDirectory() as folder:
        repository = write_repository(Path(folder), [chosen.model])
        print(f"{chosen.model}, {chosen.callers} calls in flight on four connections")
        for line in (*rates(repository, chosen), *copies(repository, chosen)):
            print(line, flush=True)
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--client"]:
        at, way_of, name, num_callers, duration = sys.argv[2:]
        uvloop.run(client(at, way_of, name, int(num_callers), float(duration)))
    else:
        sys.exit(main(sys.argv[1:]))
