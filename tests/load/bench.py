"""The benchmark: floors, headrace on each transport, and ONNX Runtime alone, in one run.

    make bench
    PYTHONPATH=tests python -m load.bench [--rounds 3] [--seconds 3] [--only mlp] [--quick]

Client and servers share the machine. All servers run all the time; one at a time has work, in turns
within each round, so that a neighbour's noise falls on all alike. Figures are medians over rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

from load.drive import has_h2load, install_h2load, measure
from load.models import write_repository
from load.report import Runs, rows, table
from load.targets import HEADRACE, Target, floor, headrace, targets_of
from load.work import QUICK_WORKS, WORKS, Figures, Work

JSON_PATH = Path("build/bench.json")


def in_process(repository: Path, work: Work, seconds: float) -> Iterator[tuple[str, Figures]]:
    """ONNX Runtime alone, in one thread and in as many as there are cores."""
    for num_threads in sorted({1, os.cpu_count() or 1}):
        command = [sys.executable, "-m", "load.inprocess", str(repository), work.model]
        command += [str(num_threads), str(seconds)]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=seconds + 60)
        threads = f"{num_threads} thread{'s' if num_threads > 1 else ''}"
        yield f"ONNX Runtime alone, {threads}", Figures(**json.loads(done.stdout))


def measure_all(works: Sequence[Work], repository: Path, *, rounds: int, seconds: float) -> Runs:
    """Starts every server that the works need, and measures round by round."""
    runs: dict[tuple[Work, str], list[Figures]] = {}
    names = dict.fromkeys(name for work in works for name in targets_of(work))
    with ExitStack() as stack:
        targets: dict[str, Target] = {}
        for name in names:
            open_target = headrace if name in HEADRACE else floor
            targets[name] = stack.enter_context(open_target(name, repository))
        for turn in range(rounds):
            for work in works:
                print(f"bench: round {turn + 1} of {rounds}: {work.name}", file=sys.stderr)
                for name in targets_of(work):
                    figures = measure(targets[name], work, repository, seconds)
                    runs.setdefault((work, name), []).append(figures)
                if "grpcio ort" in work.floors:
                    for name, figures in in_process(repository, work, seconds):
                        runs.setdefault((work, name), []).append(figures)
    return runs


def conditions(rounds: int, seconds: float) -> dict[str, object]:
    """What has to be known to read the figures."""
    return {
        "cores": os.cpu_count(),
        "machine": platform.processor() or platform.machine(),
        "python": platform.python_version(),
        "rounds": rounds,
        "seconds": seconds,
        "client": "h2load for small messages" if has_h2load() else "grpc.aio for all messages",
        "load_average": os.getloadavg()[0],
    }


def main(arguments: Sequence[str]) -> int:
    """Measures, prints the tables and writes the JSON."""
    parser = argparse.ArgumentParser(prog="load.bench", description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--only", default="", help="only works whose name holds this text")
    parser.add_argument("--quick", action="store_true", help="a smoke run: a few seconds in all")
    parser.add_argument("--json", type=Path, default=JSON_PATH)
    chosen = parser.parse_args(arguments)
    if chosen.quick:
        chosen.rounds, chosen.seconds = 1, 0.3
    else:
        install_h2load()
    every = QUICK_WORKS if chosen.quick else WORKS
    works = [work for work in every if chosen.only in work.name]
    if not works:
        parser.error(f"--only {chosen.only}: no such work; there are {[w.name for w in every]}")
    with tempfile.TemporaryDirectory() as folder:
        repository = write_repository(Path(folder), {work.model for work in works})
        runs = measure_all(works, repository, rounds=chosen.rounds, seconds=chosen.seconds)
    made, known = rows(runs), conditions(chosen.rounds, chosen.seconds)
    print(", ".join(f"{name} {value}" for name, value in known.items()), end="\n\n")
    print(table(made))
    chosen.json.parent.mkdir(parents=True, exist_ok=True)
    record = {"conditions": known, "rows": [asdict(row) for row in made]}
    chosen.json.write_text(json.dumps(record, indent=1))
    print(f"\nwritten: {chosen.json}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
