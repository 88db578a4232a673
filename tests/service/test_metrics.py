"""/metrics tells what was sent: each number from where its name says."""

from __future__ import annotations

import json

import numpy as np
import pytest

from helpers.messages import infer, tensor
from helpers.rpc_client import RpcClient, infer_message, told
from helpers.scrape import Scrape, is_at_rest
from helpers.server import Server

ROW = np.zeros((1, 4), np.float32)
STAGES = ("receive", "stage", "queue", "h2d", "execute", "d2h", "reply", "total")


@pytest.fixture
def address(small: Server) -> str:
    return small.metrics_address


def test_names_and_labels(client: RpcClient, address: str) -> None:
    """Triton's names with Triton's labels, ours with the same and one more where it is needed."""
    client.infer("versions", {"x": ROW})
    reading = Scrape(address)
    of_model = {("model", "version")}
    for name in (
        "nv_inference_request_success",
        "nv_inference_count",
        "nv_inference_exec_count",
        "nv_inference_request_duration_us",
        "nv_inference_queue_duration_us",
        "nv_inference_compute_input_duration_us",
        "nv_inference_compute_infer_duration_us",
        "nv_inference_compute_output_duration_us",
        "nv_inference_pending_request_count",
        "headrace_queue_length",
    ):
        assert reading.labels(name) == of_model, name
    with_reason = {("model", "reason", "version")}
    assert reading.labels("nv_inference_request_failure") == with_reason
    assert reading.labels("headrace_dropped") == with_reason
    assert reading.labels("headrace_stage_seconds_bucket") == {("le", "model", "stage", "version")}
    for name in (
        "headrace_slots_busy",
        "headrace_lanes_in_flight",
        "headrace_blocks_leased",
        "headrace_blocks_leased_bytes",
        "headrace_poller_sweeps",
        "nv_cpu_utilization",
        "nv_cpu_memory_total_bytes",
        "nv_pinned_memory_pool_total_bytes",
    ):
        assert reading.labels(name) == {()}, name


def test_what_batches_take_is_shown(client: RpcClient, address: str) -> None:
    """Of models that batch, by rows, before any request; ModelConfig tells the same sizes."""
    reading = Scrape(address)
    assert reading.labels("headrace_service_seconds") == {("model", "rows", "version")}
    config = client.ask("ModelConfig", name="versions").config
    told = json.loads(config.parameters["headrace.service_seconds"].string_value)
    assert set(told) >= {"1", "2", "4"}  # and what others have asked for meanwhile
    for rows in ("1", "2", "4"):
        labels = {"model": "versions", "version": "10", "rows": rows}
        assert 0 < reading("headrace_service_seconds", **labels) < 1


def test_counts_are_those_of_what_was_sent(client: RpcClient, address: str) -> None:
    """Requests, rows and runs, of the version that answered and of no other."""
    before = Scrape(address)
    for rows in (1, 2, 4):
        client.infer("versions", {"x": np.zeros((rows, 4), np.float32)}, version="2")
    now = Scrape(address)

    def moved(name: str, version: str = "2", **labels: str) -> float:
        labels |= {"model": "versions", "version": version}
        return now(name, **labels) - before(name, **labels)

    assert moved("nv_inference_request_success") == 3
    assert moved("nv_inference_count") == 7
    assert moved("nv_inference_exec_count") == 3
    assert moved("nv_inference_request_failure") == 0
    total_us = moved("nv_inference_request_duration_us")
    parts_us = sum(
        moved(f"nv_inference_{part}_duration_us")
        for part in ("queue", "compute_input", "compute_infer", "compute_output")
    )
    assert 0 < parts_us <= total_us
    assert moved("headrace_stage_seconds_sum", stage="total") == pytest.approx(
        total_us / 1e6, abs=1e-5
    )
    assert moved("nv_inference_request_success", version="1") == 0


def test_stages_are_counted_where_they_can_be_measured(client: RpcClient, address: str) -> None:
    """On the CPU nothing is copied to a device, and nobody claims that it took no time."""
    before = Scrape(address)
    for _ in range(5):
        client.infer("turned", {"a": np.zeros((1, 2), np.float32), "b": np.zeros((1, 3), np.int64)})
    now = Scrape(address)
    counts = {
        stage: now("headrace_stage_seconds_count", model="turned", stage=stage)
        - before("headrace_stage_seconds_count", model="turned", stage=stage)
        for stage in STAGES
    }
    assert counts == {stage: 0 if stage in ("h2d", "d2h") else 5 for stage in STAGES}


def test_failures_are_counted_by_reason(client: RpcClient, address: str) -> None:
    """A run that fails is the backend's; a request that never came so far is not the model's."""
    before = Scrape(address)
    told(client.start(infer_message("picks", {"i": np.array([[77]])})))
    told(client.start(infer_message("picks", {"j": np.array([[0]])})))
    not_text = infer("identity_bytes", [tensor("x", "BYTES", [1, 1])], [b"\1\0\0\0\xff"])
    told(client.start(not_text))
    now = Scrape(address)

    def moved(model: str, reason: str) -> float:
        labels = {"model": model, "reason": reason}
        return now("nv_inference_request_failure", **labels) - before(
            "nv_inference_request_failure", **labels
        )

    assert [moved("picks", reason) for reason in ("BACKEND", "OTHER", "REJECTED")] == [1, 0, 0]
    assert [moved("identity_bytes", reason) for reason in ("BACKEND", "OTHER")] == [0, 1]
    assert now("nv_inference_request_success", model="picks") == before(
        "nv_inference_request_success", model="picks"
    )


def test_gauges_go_back_to_zero(client: RpcClient, address: str) -> None:
    """After answers, errors and refusals alike nothing is left anywhere."""
    calls = [client.start(infer_message("versions", {"x": ROW})) for _ in range(50)]
    calls += [client.start(infer_message("picks", {"i": np.array([[77]])})) for _ in range(50)]
    calls += [client.start(b"\xff") for _ in range(50)]
    for call in calls:
        told(call)
    Scrape.when(address, is_at_rest)


def test_statistics_and_metrics_agree(client: RpcClient, address: str) -> None:
    """Two windows on the same counters."""
    client.infer("reshaped", {"x": np.zeros((3, 1), np.float32)})
    reading = Scrape(address)
    (statistics,) = client.ask("ModelStatistics", name="reshaped", version="1").model_stats
    stats = statistics.inference_stats
    assert reading("nv_inference_request_success", model="reshaped") == stats.success.count
    assert reading("nv_inference_count", model="reshaped") == statistics.inference_count
    assert reading("nv_inference_exec_count", model="reshaped") == statistics.execution_count
    for name, part in (
        ("request", stats.success),
        ("queue", stats.queue),
        ("compute_input", stats.compute_input),
        ("compute_infer", stats.compute_infer),
        ("compute_output", stats.compute_output),
    ):
        shown_us = reading(f"nv_inference_{name}_duration_us", model="reshaped")
        assert shown_us == pytest.approx(part.ns / 1000, abs=1)
