"""NVIDIA's load generator, run for a moment: whether it works, not what it measures."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from helpers.environments import run
from helpers.server import Server

Tool = tuple[str | Path, Mapping[str, str]]  # the binary, and variables that find its libraries

# Short windows, and a spread that a shared machine cannot miss: this is not a measurement.
QUICK = ("-p", "500", "-r", "10", "-s", "900")


def analyze(tool: Tool, server: Server, model: str, *arguments: str) -> str:
    """Run it to its end; what it printed."""
    binary, variables = tool
    command: list[str | Path] = [binary, "-m", model, "-i", "grpc", "-u", server.address, *QUICK]
    return run([*command, *arguments], timeout_s=90, env=variables)


def assert_takes_regions(tool: Tool, server: Server, model: str, kind: str, *more: str) -> None:
    """Exit code 0 with both ways in shared memory of a kind; nothing is left of it."""
    regions = ("--concurrency-range", "2", "--shared-memory", kind)
    printed = analyze(tool, server, model, *regions, *more)
    assert re.search(r"Inference count: [1-9]\d*", printed)
    assert "unable" not in printed.lower()
    assert server.metrics()["headrace_regions"] == 0
