"""`headrace serve` as a process: what it prints, what it exposes, and its exit codes."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tritonclient.grpc import InferenceServerClient, InferInput

from headrace.metrics import STAGES
from helpers.server import Server, serving, start

MODELS = Path(__file__).parents[3] / "deploy" / "models"
MODEL = MODELS / "digits" / "1" / "model.onnx"


def end_of(server: Server) -> tuple[int, str]:
    """Wait for a server that cannot start."""
    code = server.process.wait(15)
    server._reader.join(5)
    return code, server.output()


def scrape(server: Server) -> dict[str, str]:
    with urllib.request.urlopen(f"http://{server.metrics_address}/metrics", timeout=5) as reply:
        text = reply.read().decode()
    return {family.name: family.type for family in text_string_to_metric_families(text)}


def test_it_says_where_it_is_and_exposes_every_metric() -> None:
    """Banner, ready line, health, Triton's names and ours, the machine's figures; SIGTERM is 0."""
    with serving("--model-repository", MODELS, "--log-format=json") as server:
        assert "digits" in server.output()
        for probe in ("live", "ready"):
            url = f"http://{server.metrics_address}/v2/health/{probe}"
            with urllib.request.urlopen(url, timeout=5) as reply:
                assert reply.status == 200
        names = scrape(server)
    expected = {
        "nv_inference_request_success",
        "nv_inference_request_failure",
        "nv_inference_count",
        "nv_inference_exec_count",
        "nv_inference_request_duration_us",
        "nv_inference_queue_duration_us",
        "nv_inference_compute_input_duration_us",
        "nv_inference_compute_infer_duration_us",
        "nv_inference_compute_output_duration_us",
        "nv_inference_pending_request_count",
        "nv_cpu_memory_total_bytes",
        "nv_cpu_memory_used_bytes",
        "nv_pinned_memory_pool_total_bytes",
        "headrace_stage_seconds",
        "headrace_slots_busy",
        "headrace_lanes_in_flight",
        "headrace_blocks_leased",
        "headrace_blocks_leased_bytes",
        "headrace_queue_length",
        "headrace_dropped",
        "headrace_poller_sweeps",
    }
    assert expected <= names.keys()
    logged = [line for line in server.output().splitlines() if line.startswith("{")]
    assert logged
    assert all(json.loads(line)["logger"] for line in logged)


def test_a_model_file_is_served_without_configuration_and_without_metrics() -> None:
    """Zero configuration: one file, and metrics switched off in Triton's way."""
    with serving(MODEL, "--allow-metrics=false") as server:
        assert server.metrics_address == "-"
        assert "model" in server.output()


def test_ctrl_c_drains_too() -> None:
    """SIGINT ends the process with 0, as SIGTERM does."""
    server = start(MODEL)
    try:
        server.wait_ready()
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(15) == 0
    finally:
        server.kill()


def test_a_model_that_does_not_load_ends_with_1(tmp_path: Path) -> None:
    """The text names the file; with --exit-on-error=false the other models are served."""
    shutil.copytree(MODELS / "digits", tmp_path / "digits")
    shutil.copytree(MODELS / "digits", tmp_path / "broken")
    (tmp_path / "broken" / "config.pbtxt").unlink()
    broken = tmp_path / "broken" / "1" / "model.onnx"
    broken.write_bytes(b"\x08no model")
    code, output = end_of(start("--model-repository", tmp_path))
    assert code == 1, output
    assert str(broken) in output
    assert "Traceback" not in output
    arguments = ("--exit-on-error=false", "--strict-readiness=false")
    with serving("--model-repository", tmp_path, *arguments) as server:
        assert "broken" in server.output()


@pytest.mark.parametrize("flag", ["--grpc-port", "--metrics-port"])
def test_a_taken_port_ends_with_1(flag: str) -> None:
    """The text names the port, and there is no traceback."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, output = end_of(start(MODEL, flag, str(port)))
    assert code == 1, output
    assert str(port) in output
    assert "Traceback" not in output


def test_a_wrong_flag_ends_with_2() -> None:
    """Nothing is opened for a configuration that is wrong."""
    code, output = end_of(start(MODEL, "--grpc-io-threads=0"))
    assert code == 2
    assert "--grpc-io-threads: got '0', expected an integer from 1 to 64" in output


def test_what_is_served_is_counted() -> None:
    """Requests, rows, executions and each stage's histogram equal what the client sent."""
    with serving("--model-repository", MODELS) as server:
        client = InferenceServerClient(server.address)
        tensor = InferInput("input", [3, 64], "FP32")
        tensor.set_data_from_numpy(np.zeros((3, 64), np.float32))
        for _ in range(5):
            client.infer("digits", [tensor])
        figures = server.metrics()
        statistics = client.get_inference_statistics("digits").model_stats[0]
        client.close()
    assert figures["nv_inference_request_success"] == 5
    assert figures["nv_inference_count"] == 15
    assert figures["nv_inference_exec_count"] == 5
    measured = len(STAGES) - 2  # no copies on the CPU
    assert figures["headrace_stage_seconds_count"] == 5 * measured
    assert figures["nv_inference_request_duration_us"] > 0
    assert statistics.inference_count == 15
    assert statistics.inference_stats.success.count == 5
    assert statistics.inference_stats.compute_infer.ns == pytest.approx(
        figures["nv_inference_compute_infer_duration_us"] * 1000, rel=1e-6
    )
