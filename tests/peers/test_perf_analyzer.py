"""NVIDIA's load generator, the C++ client, unmodified."""

from __future__ import annotations

import platform
import re
import shutil
from pathlib import Path

import pytest

from helpers.environments import perf_analyzer, run
from helpers.server import Server

# Short windows, and a spread that a shared machine cannot miss: this is not a measurement.
QUICK = ("-p", "500", "-r", "10", "-s", "900", "--concurrency-range", "1:4")

pytestmark = [
    pytest.mark.skipif(
        platform.machine() != "x86_64" or shutil.which("apt-get") is None,
        reason="the binary is for x86-64, and one of its libraries comes as a Debian package",
    ),
    pytest.mark.timeout(300),
]


def assert_measured(server: Server, *arguments: str) -> None:
    """It ran to its end at every level, and read the server's own statistics."""
    binary, variables = perf_analyzer()
    command: list[str | Path] = [binary, "-m", "mlp", "-i", "grpc", "-u", server.address, *QUICK]
    printed = run([*command, *arguments], timeout_s=90, env=variables)
    assert re.findall(r"Request concurrency: (\d)", printed) == ["1", "2", "3", "4"]
    assert len(re.findall(r"Inference count: [1-9]\d*", printed)) == 4
    assert len(re.findall(r"Avg request latency: [1-9]\d* usec \(overhead", printed)) == 4
    assert "compute infer" in printed


def test_unary_at_concurrency_one_to_four(server: Server) -> None:
    """Exit code 0 at every level, with the server's own statistics beside the client's."""
    assert_measured(server)


def test_streaming_at_concurrency_one_to_four(server: Server) -> None:
    """The same over ModelStreamInfer."""
    assert_measured(server, "--streaming", "--async")
