"""NVIDIA's load generator, the C++ client, unmodified."""

from __future__ import annotations

import platform
import re
import shutil
from pathlib import Path

import pytest

from helpers import onnx_models
from helpers.analyzer import analyze
from helpers.environments import perf_analyzer
from helpers.scrape import Scrape, is_at_rest
from helpers.server import Server, ServerPool

RATE = ("--request-rate-range", "50", "--num-of-sequences", "2")
LEVELS = ("--concurrency-range", "1:4")

pytestmark = [
    pytest.mark.skipif(
        platform.machine() != "x86_64" or shutil.which("apt-get") is None,
        reason="the binary is for x86-64, and one of its libraries comes as a Debian package",
    ),
    pytest.mark.timeout(300),
]


def num_failed(server: Server) -> float:
    """How many requests to the model of the sequences have failed, once none is under way.

    Not those that the client takes back, as it does when it has measured for long enough.
    """
    reading = Scrape.when(server.metrics_address, is_at_rest)
    name, of = "nv_inference_request_failure", {"model": "carries"}
    return reading(name, **of) - reading(name, reason="CANCELED", **of)


def assert_measured(server: Server, *arguments: str) -> None:
    """It ran to its end at every level, and read the server's own statistics."""
    printed = analyze(perf_analyzer(), server, "mlp", *LEVELS, *arguments)
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


@pytest.mark.parametrize(
    "load",
    [
        ("--concurrency-range", "3"),
        ("--concurrency-range", "3", "--streaming", "--async"),
        # At a rate it does not wait for answers: then only a stream and one sender keep the order.
        (*RATE, "--streaming", "--max-threads", "1"),
    ],
    ids=["unary", "streaming", "rate"],
)
def test_sequences(server: Server, load: tuple[str, ...]) -> None:
    """Of a model that keeps state: every part of every sequence is answered."""
    failed = num_failed(server)
    printed = analyze(
        perf_analyzer(), server, "carries", "--sequence-length", "5", "-b", "1", *load
    )
    assert re.findall(r"Sequence count: [1-9]\d* \([1-9]", printed), printed
    assert num_failed(server) == failed


def test_a_response_cache(servers: ServerPool, tmp_path: Path) -> None:
    """It sends the same again and again, and reads from our statistics that those were hits."""
    onnx_models.save(onnx_models.adds(1), tmp_path / "adds/1/model.onnx")
    (tmp_path / "adds/config.pbtxt").write_text("response_cache { enable: true }")
    server = servers.get("--model-repository", tmp_path, "--cache-config", "local,size=65536")
    printed = analyze(
        perf_analyzer(), server, "adds", "--shape", "x:1,4", "--concurrency-range", "2:2"
    )
    assert re.search(r"Cache hit count: [1-9]\d*", printed), printed
    assert re.search(r"Average Cache Hit Latency: [1-9]\d* usec", printed)
    assert server.metrics()["nv_cache_num_misses_per_model"] <= 2  # who came together
