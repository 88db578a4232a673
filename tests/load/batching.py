"""What batches, deadlines and fairness do to a served model: tables for docs/benchmarks.md.

    PYTHONPATH=proto:server:client:tests python3 -m load.batching [--device host|cudart]
        [--model mlp] [--parts capacity poisson overload cameras] [--setups none auto]
        [--cores 2] [--seconds 3] [--transport grpcio] [--deadline-ms 200] [--slots 0]

The server runs on the first `--cores` cores and the load generator, `headrace-client bench`, on the
rest; with fewer cores than both need, they share them, and the table says so.

    capacity   a closed loop of `--callers`: requests a second, rows a run, CPU a request
    poisson    random arrivals at 0.7 of what each setup can do, and `--rate` of them if given
    overload   random arrivals at 0.5 to 3 of the capacity, each with a deadline: goodput
    cameras    64 sources at 25 a second, one of them at `--flood` times that, against without
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helpers import process_tree
from load.models import MAX_BATCH_SIZE, write_repository

READY = re.compile(r"^headrace ready: grpc=(\S+)")
LOADS = (0.5, 0.8, 1.0, 1.2, 1.5, 2.0, 3.0)  # of the capacity
CAMERAS, FRAMES_PER_S = 64, 25


@dataclass(frozen=True)
class Level:
    """One load, as the client and the server saw it."""

    seen: dict[str, Any]
    server: dict[str, Any]
    cpu_us: float  # of the server, for each request that was due
    verdict: str

    def cells(self) -> list[str]:
        """Return what every table shows of it."""
        latency, rows = self.seen["latency"], self.server.get("rows_per_execution")
        return [
            f"{self.seen['throughput_per_s']:,.0f}",
            f"{self.seen['goodput_per_s']:,.0f}",
            *(
                "–" if latency[key] is None else f"{latency[key]:.1f}"
                for key in ("p50_ms", "p99_ms")
            ),
            "–" if rows is None else f"{rows:.1f}",
            f"{self.cpu_us:.0f}",
            " ".join(f"{code} {count:,}" for code, count in self.seen["codes"].items()),
        ]


CELLS = ("answers/s", "good/s", "p50 ms", "p99 ms", "rows a run", "CPU us", "codes")


def pinned(cores: set[int]) -> list[str]:
    """Return the start of a command that runs Python code on these cores alone."""
    return ["taskset", "-c", ",".join(map(str, sorted(cores))), sys.executable, "-c"]


class Bench:
    """A served model, and cores to put load on it from."""

    def __init__(self, address: str, pid: int, model: str, cores: set[int], seconds: float) -> None:
        self._address = address
        self._pid = pid
        self._model = model
        self._cores = cores
        self._seconds = seconds

    def load(self, *flags: str) -> Level:
        """Run the load generator with these flags and return its only level."""
        command = [*pinned(self._cores), "from headrace_client.cli import main; main()", "bench"]
        command += [self._model, "-u", self._address, "-q", "--json"]
        command += ["--duration-s", str(self._seconds), *flags]
        before_s = process_tree.cpu_s(self._pid)
        done = subprocess.run(
            command,
            check=False,
            capture_output=True,
            text=True,
        )
        cpu_s = process_tree.cpu_s(self._pid) - before_s
        if not done.stdout:
            raise RuntimeError(done.stderr)
        (level,) = json.loads(done.stdout)["levels"]
        seen = level["seen"]
        share = seen["measured_s"] / (seen["measured_s"] + 1)  # a second of warm-up costs CPU, too
        cpu_us = cpu_s * share / max(seen["num_due"], 1) * 1e6
        return Level(seen, level["server"] or {}, cpu_us, level["verdict"]["text"])


@contextmanager
def served(
    model: str, policy: str, chosen: argparse.Namespace, cores: set[int]
) -> Iterator[tuple[str, int]]:
    """A server of one model under a policy: its address and process id."""
    with tempfile.TemporaryDirectory() as folder:
        repository = write_repository(Path(folder), [model])
        (repository / model / "config.pbtxt").write_text(policy)
        command = [*pinned(cores), "from headrace.cli import main; main()", "serve"]
        command += ["--model-repository", str(repository), "--device", chosen.device]
        command += ["--grpc-port=0", "--metrics-port=0", "--grpc-address=127.0.0.1"]
        command += ["--transport", chosen.transport, "--exit-timeout-secs=2"]
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if found := READY.match(line):
                    break
            else:
                raise AssertionError(f"headrace serve ended with {process.wait()}")
            yield found[1], process.pid
        finally:
            process.terminate()
            process.wait(60)


def policy_of(model: str, setup: str, slots: int) -> str:
    """Return config.pbtxt of a setup: none, auto, delayMILLISECONDS, targetMILLISECONDS, latest.

    `auto` says no more than how many rows there may be: batching is completed, as Triton does.
    """
    rows = 1 if setup == "none" else MAX_BATCH_SIZE
    lines = [f'name: "{model}"', 'backend: "onnxruntime"', f"max_batch_size: {rows}"]
    if slots:
        lines.append(f"instance_group [ {{ count: {slots} }} ]")
    if setup.startswith("delay"):
        delay_us = int(float(setup.removeprefix("delay")) * 1000)
        lines.append(f"dynamic_batching {{ max_queue_delay_microseconds: {delay_us} }}")
    parameters = {}
    if setup.startswith("target"):
        parameters["headrace.target_p99_ms"] = setup.removeprefix("target")
    if setup == "latest":
        parameters["headrace.queue_policy"] = "latest"
    for key, value in parameters.items():
        lines.append(f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}')
    return "\n".join(lines) + "\n"


def head(*columns: str) -> None:
    """Print the head of a table."""
    print("\n| " + " | ".join(columns) + " |\n|" + " --- |" * len(columns), flush=True)


def row(*cells: str) -> None:
    """Print a row."""
    print("| " + " | ".join(cells) + " |", flush=True)


def poisson(rate: float, deadline_ms: float) -> tuple[str, ...]:
    """Return the flags of random arrivals."""
    return (
        *("--rate", f"{rate:.1f}", "--arrivals", "poisson"),
        *("--deadline-ms", f"{deadline_ms:g}"),
    )


def cameras(bench: Bench, setup: str, deadline_ms: float, floods: Sequence[int]) -> None:
    """Print what one flooding camera does to the others."""
    flags = ("--sources", str(CAMERAS), "--rate-per-source", str(FRAMES_PER_S))
    for flood in ((), *(("--flood", f"0:{times}") for times in floods)):
        level = bench.load(*flags, *flood, "--deadline-ms", f"{deadline_ms:g}")
        others = level.seen["sources"]["others"]
        lost = f"{others['num_lost']:,} of {others['num_due']:,}"
        p99_ms = "–" if others["p99_ms"] is None else f"{others['p99_ms']:.1f}"
        row(setup, flood[1] if flood else "no flood", lost, p99_ms, *level.cells())


def measure(chosen: argparse.Namespace, server_cores: set[int], client_cores: set[int]) -> None:
    """Print the tables of one model."""
    capacity: dict[str, float] = {}
    for part in chosen.parts:
        columns = {"capacity": (), "poisson": ("rate",), "overload": ("load", "rate")}
        head("setup", *columns.get(part, ("with", "others lost", "others p99 ms")), *CELLS)
        for setup in chosen.setups:
            policy = policy_of(chosen.model, setup, chosen.slots)
            with served(chosen.model, policy, chosen, server_cores) as (address, pid):
                bench = Bench(address, pid, chosen.model, client_cores, chosen.seconds)
                if part == "capacity":
                    level = bench.load("--concurrency", str(chosen.callers))
                    capacity[setup] = level.seen["throughput_per_s"]
                    row(setup, *level.cells())
                    print(level.verdict, file=sys.stderr)
                elif part == "poisson":
                    for rate in chosen.rate or [0.7 * capacity[setup]]:
                        level = bench.load(*poisson(rate, chosen.deadline_ms))
                        row(setup, f"{rate:,.0f}", *level.cells())
                elif part == "overload":
                    for load in chosen.loads:
                        rate = load * max(capacity.values())
                        level = bench.load(*poisson(rate, chosen.deadline_ms))
                        row(setup, f"{load:g}", f"{rate:,.0f}", *level.cells())
                        if level.seen["lag"]["p99_ms"] > 1:
                            print(level.verdict, file=sys.stderr)
                else:
                    cameras(bench, setup, chosen.deadline_ms, chosen.flood)


def main(arguments: Sequence[str]) -> int:
    """Measure one model in every setup."""
    parser = argparse.ArgumentParser(prog="load.batching", description=__doc__)
    parser.add_argument("--model", default="mlp")
    parser.add_argument("--device", default="host")
    parser.add_argument("--transport", default="grpcio")
    parser.add_argument("--parts", nargs="+", default=["capacity", "poisson", "overload"])
    parser.add_argument("--setups", nargs="+", default=["none", "auto"])
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--slots", type=int, default=0)
    parser.add_argument("--callers", type=int, default=64)
    parser.add_argument("--rate", type=float, nargs="+", default=[])
    parser.add_argument("--loads", type=float, nargs="+", default=LOADS)
    parser.add_argument("--flood", type=int, nargs="+", default=[10])
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--deadline-ms", type=float, default=200.0)
    chosen = parser.parse_args(arguments)
    cores = sorted(os.sched_getaffinity(0))
    server_cores, client_cores = set(cores[: chosen.cores]), set(cores[chosen.cores :])
    shared = "" if client_cores else ", shared with the client"
    print(f"\n{chosen.model}, {chosen.transport}, {len(server_cores)} cores{shared}")
    measure(chosen, server_cores, client_cores or set(cores))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
