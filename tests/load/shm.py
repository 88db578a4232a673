"""Frames by shared memory against frames in messages: `python -m load.shm [--device cudart]`.

One client process (`load.shm_frames`) keeps so many calls of the identity model in flight, on a GPU
also with frames in the GPU's memory. Rates and CPU are medians over rounds, each round one
measurement of every kind.

Then, once more for each kind, the host's copies of a frame are counted in the server: `copies.c` is
loaded before the C library and counts the bytes of pieces from 4 KiB on, by memcpy, sockets and
files; what the GPU's engines copied out of regions and into them is the server's own figure. Needs
a C compiler; without one, that part is left out and said to be.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import chain
from pathlib import Path
from statistics import median

from helpers import process_tree
from helpers.server import NO_DEBUG, TRANSPORTS, Server, launcher, serving
from load.models import CATALOGUE, write_repository
from load.shm_frames import WAYS

DEVICES = {"host": WAYS[:2], "cudart": WAYS}
SERVER = ("--allow-client-shm", "--grpc-max-request-bytes", str(64 << 20))
Start = Callable[[str, Mapping[str, str]], AbstractContextManager[Server]]
COPIES = ("user", "socket in", "socket out", "file in", "file out")  # in the order of copies.c


def measure(address: str, way: str, chosen: argparse.Namespace) -> dict[str, float]:
    """Run a client; what it printed."""
    arguments = (address, way, chosen.model, str(chosen.callers), str(chosen.seconds))
    command = [sys.executable, "-m", "load.shm_frames", *arguments]
    seen: dict[str, float] = json.loads(
        subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
    )
    if seen["failed"]:
        raise ValueError(f"{way}: {seen['failed']} answers were wrong")
    return seen


def rates(start: Start, chosen: argparse.Namespace) -> Iterator[str]:
    """Lines of the first table."""
    seen: dict[tuple[str, str], list[tuple[float, float, float]]] = {}
    with ExitStack() as stack:
        servers = {
            transport: stack.enter_context(start(transport, NO_DEBUG)) for transport in TRANSPORTS
        }
        for _ in range(chosen.rounds):
            for transport, server in servers.items():
                for way in DEVICES[chosen.device]:
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


def copies(start: Start, chosen: argparse.Namespace) -> Iterator[str]:
    """Lines of the second table: a call's bytes by kind of copy, as multiples of a frame."""
    compiler = shutil.which("cc")
    if compiler is None:
        yield "copies are not counted: there is no C compiler (cc)"
        return
    size = len(CATALOGUE[chosen.model].sample().tobytes())
    yield f"transport | frames | {' | '.join(COPIES)} | by the GPU  (frames a call)"
    with counting(compiler) as (environment, totals):
        for transport in TRANSPORTS:
            for way in DEVICES[chosen.device]:
                with start(transport, environment) as server:
                    measure(server.address, way, chosen)  # what is allocated once
                    before = (*read(totals), direct_bytes(server))
                    calls = measure(server.address, way, chosen)["calls"]
                    after = (*read(totals), direct_bytes(server))
                counts = [late - early for late, early in zip(after, before, strict=True)]
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


def direct_bytes(server: Server) -> int:
    """What a GPU has copied out of regions and into them."""
    return int(server.metrics()["headrace_region_direct_bytes_total"])


def starter(folder: Path, chosen: argparse.Namespace) -> Start:
    """Return what starts a server of the model."""
    repository = write_repository(folder / "models", [chosen.model])
    arguments = ("--model-repository", repository, "--device", chosen.device, *SERVER)

    def start(transport: str, env: Mapping[str, str]) -> AbstractContextManager[Server]:
        return serving(*arguments, "--transport", transport, env=env, headrace=launcher(folder))

    return start


def main(argv: Sequence[str]) -> int:
    """Measure, and print both tables."""
    parser = argparse.ArgumentParser(prog="load.shm", description=__doc__.partition("\n")[0])
    parser.add_argument("model", nargs="?", default="identity_6mb")
    parser.add_argument("--device", default="host", choices=DEVICES)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--callers", type=int, default=8)
    chosen = parser.parse_args(argv)
    os.environ.setdefault("PYTHONPATH", str(Path(__file__).parents[1]))
    with tempfile.TemporaryDirectory() as folder:
        start = starter(Path(folder), chosen)
        print(f"{chosen.model}, {chosen.callers} calls in flight on four connections")
        for line in chain(rates(start, chosen), copies(start, chosen)):
            print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
