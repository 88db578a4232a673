"""Versions of a model swapped under load: what fails, and what the others wait.

    PYTHONPATH=proto:server:client:tests python -m load.reload [--swaps 100] [--qps 500]
        [--model adds mlp] [--transport grpcio native] [--device host|cudart]

A client in a process of its own sends requests at random moments (Poisson), whatever comes back;
each is timed from the moment it was due. It sends first for a while without swaps, then while
version after version is written into the repository and loaded, each in the place of the last. Each
answer must be that of the version which it names: `adds` has another for each, the others the
same, which is held against the answer before the first swap bit by bit.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import numpy as np
import uvloop

from headrace_proto.v1 import inference_pb2 as pb
from helpers import onnx_models
from helpers.raw_http2 import INFER
from helpers.server import NO_DEBUG, TRANSPORTS, launcher, serving
from load.models import CATALOGUE

NAME = "m"
ADDS = "adds"
CLIENT = "--client"
LOAD = INFER.replace("ModelInfer", "RepositoryModelLoad")
OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
ANSWER_S = 30.0
WARM_UP_S = 2.0
SPARE_S = 60.0


@dataclass
class Tally:
    """What became of the requests, in order of their ends; times are of the machine's clock."""

    due_s: list[float] = field(default_factory=list)
    took_s: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


def message_of(model: str) -> bytes:
    """A request of one row."""
    x = np.zeros((1, 4), np.float32) if model == ADDS else CATALOGUE[model].sample()
    datatype = "FP32" if model == ADDS else CATALOGUE[model].datatype
    request = pb.ModelInferRequest(model_name=NAME)
    request.inputs.add(name="x", datatype=datatype, shape=x.shape)
    request.raw_input_contents.append(x.tobytes())
    return request.SerializeToString()


class Client:
    """Sends at random moments, and waits for no answer before the next."""

    def __init__(self, address: str, model: str) -> None:
        self.channels = [grpc.aio.insecure_channel(address, options=OPTIONS) for _ in range(4)]
        self.calls: list[Any] = [channel.unary_unary(INFER) for channel in self.channels]
        self.message = message_of(model)
        self.is_told = model == ADDS  # the answer tells the version
        self.right: bytes | None = None
        self.tally = Tally()
        self.open: set[asyncio.Task[None]] = set()
        self.is_over = False

    async def send(self, qps: float) -> None:
        """Send until it is over."""
        chance, number = random.Random(1), 0
        first = pb.ModelInferResponse.FromString(await self.calls[0](self.message))
        (self.right,) = first.raw_output_contents
        due = time.monotonic()
        while not self.is_over:
            due += chance.expovariate(qps)
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            task = asyncio.create_task(self.ask(self.calls[number % len(self.calls)], due))
            self.open.add(task)
            task.add_done_callback(self.open.discard)
            number += 1
        await asyncio.gather(*self.open)
        for channel in self.channels:
            await channel.close()

    async def ask(self, call: Any, due: float) -> None:
        """Send one request and note how it ended."""
        try:
            reply = pb.ModelInferResponse.FromString(await call(self.message, timeout=ANSWER_S))
        except grpc.aio.AioRpcError as error:
            self.tally.faults.append(f"{error.code().name}: {error.details()}")
            return
        took_s, version = time.monotonic() - due, int(reply.model_version)
        right = np.full(4, version, np.float32).tobytes() if self.is_told else self.right
        if list(reply.raw_output_contents) != [right]:
            self.tally.faults.append(f"version {version} answers wrongly")
        self.tally.due_s.append(due)
        self.tally.took_s.append(took_s)
        self.tally.versions.append(version)


async def client(address: str, model: str, qps: float) -> None:
    """Send until standard input ends; print what was seen."""
    sender = Client(address, model)
    gc.collect()
    gc.freeze()
    sending = asyncio.create_task(sender.send(qps))
    await asyncio.to_thread(sys.stdin.read)
    sender.is_over = True
    await sending
    json.dump(vars(sender.tally), sys.stdout)


class Repository:
    """A model whose next version can be put in."""

    def __init__(self, folder: Path, model: str) -> None:
        self.folder = folder / NAME
        self.version = 0
        self.built = None if model == ADDS else CATALOGUE[model].build().SerializeToString()

    def put(self) -> None:
        """Write the next version; the version policy takes the newest, older ones are removed."""
        self.version += 1
        path = self.folder / str(self.version) / "model.onnx"
        path.parent.mkdir(parents=True)
        path.write_bytes(self.built or onnx_models.adds(self.version).SerializeToString())
        shutil.rmtree(self.folder / str(self.version - 2), ignore_errors=True)


def swap(
    address: str, repository: Repository, swaps: int, every_s: float
) -> list[tuple[float, float]]:
    """Put in and load version after version; return when each load began and ended."""
    loads: list[tuple[float, float]] = []
    message = pb.RepositoryModelLoadRequest(model_name=NAME).SerializeToString()
    with grpc.insecure_channel(address, options=OPTIONS) as channel:
        load: Any = channel.unary_unary(LOAD)
        for number in range(swaps):
            repository.put()
            began = time.monotonic()
            load(message, timeout=SPARE_S)
            loads.append((began, time.monotonic()))
            time.sleep(max(0.0, loads[0][0] + (number + 1) * every_s - time.monotonic()))
    return loads


@dataclass
class Outcome:
    """What was seen of one server."""

    tally: Tally
    loads: list[tuple[float, float]]
    before_bytes: int  # resident memory before the first swap
    after_bytes: int  # and after the last

    def faults(self) -> list[str]:
        """Return what was wrong."""
        faults, last = list(self.tally.faults), len(self.loads) + 1
        if self.tally.versions[-1] != last:
            faults.append(f"version {self.tally.versions[-1]} answered last instead of {last}")
        return faults

    def latencies_ms(self) -> dict[str, list[float]]:
        """Return p50, p99, p99.9 and the largest: quiet, with swaps, and of those amid a load."""
        due_s, took_s = np.array(self.tally.due_s), np.array(self.tally.took_s)
        began_at, ended_at = self.loads[0][0], self.loads[-1][1]
        amid = np.zeros(len(due_s), bool)
        for began, ended in self.loads:
            amid |= (due_s + took_s >= began) & (due_s <= ended)
        parts = {
            "quiet": (due_s >= due_s.min() + WARM_UP_S) & (due_s < began_at),
            "with swaps": (due_s >= began_at) & (due_s <= ended_at),
            "amid a load": amid,
        }
        return {
            name: [*np.percentile(took_s[part] * 1e3, [50, 99, 99.9, 100])]
            for name, part in parts.items()
            if part.any()
        }


def measure(transport: str, model: str, chosen: argparse.Namespace) -> Outcome:
    """Measure one transport with one model."""
    with tempfile.TemporaryDirectory() as folder:
        models = Path(folder, "models")
        repository = Repository(models, model)
        repository.put()
        program = [sys.executable, "-m", "load.reload", CLIENT]
        mode = ("--model-control-mode=explicit", f"--load-model={NAME}")
        place = (f"--transport={transport}", f"--device={chosen.device}")
        with (
            serving(
                *("--model-repository", models, *mode, *place),
                env=NO_DEBUG,
                headrace=launcher(Path(folder)),
            ) as server,
            subprocess.Popen(
                [*program, server.address, model, str(chosen.qps)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, **NO_DEBUG},
            ) as process,
        ):
            time.sleep(WARM_UP_S + chosen.quiet_s)
            before_bytes = server.rss_bytes()
            loads = swap(server.address, repository, chosen.swaps, chosen.every_s)
            after_bytes = server.rss_bytes()
            output, _ = process.communicate("", SPARE_S)
    return Outcome(Tally(**json.loads(output)), loads, before_bytes, after_bytes)


def report(title: str, outcome: Outcome) -> bool:
    """Print what was seen; True when all was well."""
    loads_ms = [(ended - began) * 1e3 for began, ended in outcome.loads]
    grown_mb = (outcome.after_bytes - outcome.before_bytes) / 1e6
    print(
        f"{title}: {len(outcome.tally.due_s)} answers, {len(outcome.faults())} faults; "
        f"{len(loads_ms)} swaps, a load takes {np.median(loads_ms):.0f} ms, "
        f"{max(loads_ms):.0f} at most; memory {grown_mb:+.0f} MB"
    )
    print(f"  {'ms':<12} {'p50':>8} {'p99':>8} {'p99.9':>8} {'max':>8}")
    for name, values in outcome.latencies_ms().items():
        print(f"  {name:<12} " + " ".join(f"{value:8.2f}" for value in values))
    for fault in outcome.faults()[:20]:
        print(f"  fault: {fault}")
    return not outcome.faults()


def main(arguments: Sequence[str]) -> int:
    """Measure one after the other; the exit code is 0 when all was well."""
    if arguments[:1] == [CLIENT]:
        address, model, qps = arguments[1:]
        uvloop.run(client(address, model, float(qps)))
        return 0
    parser = argparse.ArgumentParser(prog="load.reload", description=__doc__.partition("\n")[0])
    parser.add_argument("--swaps", type=int, default=100)
    parser.add_argument("--qps", type=float, default=500)
    parser.add_argument("--every-s", type=float, default=0.25, help="from swap to swap, at least")
    parser.add_argument("--quiet-s", type=float, default=20, help="without swaps, before them")
    parser.add_argument("--device", default="host", choices=["host", "cudart"])
    parser.add_argument("--model", nargs="+", default=[ADDS, "mlp"], choices=[ADDS, *CATALOGUE])
    parser.add_argument("--transport", nargs="+", default=TRANSPORTS, choices=TRANSPORTS)
    chosen = parser.parse_args(arguments)
    outcomes = [
        report(f"{transport}, {model}", measure(transport, model, chosen))
        for model in chosen.model
        for transport in chosen.transport
    ]
    return 0 if all(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
