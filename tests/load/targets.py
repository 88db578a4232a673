"""Starts what is measured: floors and headrace, each in its own process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from helpers.server import NO_DEBUG, serving
from load.work import Work

FLOORS = ("grpcio echo", "native echo", "grpcio parse", "grpcio ort", "native ort")
HEADRACE = {
    "headrace grpcio": ("--transport", "grpcio"),
    "headrace native": ("--transport", "native"),
    "headrace grpcio, no metrics": ("--transport", "grpcio", "--allow-metrics=false"),
    "headrace native, no metrics": ("--transport", "native", "--allow-metrics=false"),
}
# What headrace sets for itself: without it glibc gives large blocks back after each message, and a
# floor would be measured against page faults.
KEEP_LARGE_BLOCKS = {
    "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
    "MALLOC_TOP_PAD_": str(64 << 20),
}


@dataclass(frozen=True)
class Target:
    """A running server."""

    name: str
    address: str
    pid: int

    @property
    def is_echo(self) -> bool:
        """Whether it answers with the request itself."""
        return self.name.endswith("echo")


@contextmanager
def floor(name: str, repository: Path) -> Iterator[Target]:
    """A bare server."""
    process = subprocess.Popen(
        [sys.executable, "-m", "load.floors", name, str(repository)],
        env={**os.environ, **KEEP_LARGE_BLOCKS, **NO_DEBUG},
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            assert process.stdout is not None
            word, port = process.stdout.readline().split()
            assert word == "ready"
            yield Target(name, f"127.0.0.1:{port}", process.pid)
        finally:
            process.kill()


@contextmanager
def headrace(name: str, repository: Path) -> Iterator[Target]:
    """Headrace with the options of its name."""
    arguments: tuple[str | Path, ...] = ("--model-repository", repository, *HEADRACE[name])
    with serving(*arguments, env=NO_DEBUG) as server:
        yield Target(name, server.address, server.pid)


def targets_of(work: Work) -> tuple[str, ...]:
    """Who does a piece of work: its floors, headrace, and for the MLP headrace without metrics."""
    with_metrics = tuple(name for name in HEADRACE if "no metrics" not in name)
    return (*work.floors, *(HEADRACE if work.model == "mlp" else with_metrics))
