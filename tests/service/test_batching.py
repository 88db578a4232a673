"""Batches and queue policies as clients meet them: real servers, both transports."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import onnxruntime as ort
import pytest
from tritonclient.grpc import service_pb2 as pb

from helpers import onnx_models
from helpers.rpc_client import CALL_S, SERVICE, RpcClient, arrays, infer_message, told
from helpers.scrape import Scrape, is_at_rest, num_inside
from helpers.server import Server, ServerPool
from load.models import model_path, write_repository

Code = grpc.StatusCode
LONG = 5000  # rounds of the slow model: about a second
POLICIES = {
    "levels": "dynamic_batching { priority_levels: 2 default_priority_level: 2 }",
    "timed": (
        "dynamic_batching { default_queue_policy { default_timeout_microseconds: 60000000 "
        "allow_timeout_override: true } }"
    ),
    "latest": 'parameters { key: "headrace.queue_policy" value { string_value: "latest" } }',
    "short": "dynamic_batching { default_queue_policy { max_queue_size: 2 } }",
}
BATCHING = "max_batch_size: 8 dynamic_batching { max_queue_delay_microseconds: 20000 "


@pytest.fixture(scope="session")
def batching_repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small models that batch, and slow ones that run alone, each with a policy."""
    folder = tmp_path_factory.mktemp("batching")
    write_repository(folder, ["mlp"])
    (folder / "mlp/config.pbtxt").write_text(BATCHING + "}")
    for name, more in (("together", ""), ("ordered", "preserve_ordering: true")):
        onnx_models.save(onnx_models.busy(40), folder / name / "1/model.onnx")
        (folder / name / "config.pbtxt").write_text(f"{BATCHING} {more} }}")
    for name, policy in POLICIES.items():
        onnx_models.save(onnx_models.slow(), folder / name / "1/model.onnx")
        (folder / name / "config.pbtxt").write_text(f"{onnx_models.SLOW_CONFIG} {policy}")
    return folder


@pytest.fixture
def batching(transport: str, servers: ServerPool, batching_repository: Path) -> Server:
    """A server with these models."""
    return servers.get("--model-repository", batching_repository, "--transport", transport)


def start(
    client: RpcClient,
    model: str,
    rounds: int = 1,
    *,
    metadata: tuple[tuple[str, str | bytes], ...] = (),
    timeout_s: float | None = CALL_S,
    **parameters: Any,
) -> Any:
    """A request to one of the slow models on its way."""
    inputs: dict[str, Any] = {
        "x": np.zeros(4, np.float32),
        "rounds": np.array([rounds], np.int64),
    }
    method = client.channel.unary_unary(
        f"{SERVICE}ModelInfer",
        request_serializer=bytes,
        response_deserializer=pb.ModelInferResponse.FromString,
    )
    message = infer_message(model, inputs, parameters=parameters)
    return method.future(message, timeout=timeout_s, metadata=metadata)


class Busy:
    """A slow model with two long runs ahead, so that what comes next waits.

    Where order matters the second is bound to its lane only shortly before the first is done.
    """

    def __init__(self, client: RpcClient, server: Server, model: str) -> None:
        self.client = client
        self.server = server
        self.model = model
        self._dropped = Scrape.when(server.metrics_address, is_at_rest)
        self.ahead = [start(client, model, LONG, timeout_s=None) for _ in range(2)]
        self._until(lambda now: num_inside(now) == 2 and now("headrace_lanes_in_flight") > 0)

    def ask(self, num_waiting: int, **wishes: Any) -> Any:
        """One more request, and until so many wait: calls may overtake each other on their way."""
        call = start(self.client, self.model, **wishes)
        self._until(lambda now: num_inside(now) == 2 + num_waiting or call.done())
        return call

    def num_dropped(self, reason: str) -> float:
        """How many were dropped for this reason since the beginning."""
        labels = {"model": self.model, "reason": reason}
        now = Scrape(self.server.metrics_address)
        return now("headrace_dropped", **labels) - self._dropped("headrace_dropped", **labels)

    def _until(self, is_so: Callable[[Scrape], bool]) -> None:
        Scrape.when(self.server.metrics_address, is_so)


@pytest.mark.parametrize("model", ["mlp", "together", "ordered"])
def test_requests_that_come_together_run_together(
    batching: Server, batching_repository: Path, model: str
) -> None:
    """Of one row and of several; each gets its own rows, and the statistics add up."""
    rng = np.random.default_rng(1)
    path = model_path(batching_repository, model)
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    (source,) = session.get_inputs()
    columns = source.shape[1]
    xs = [rng.random((1 + index % 3, columns)).astype(np.float32) for index in range(48)]
    with RpcClient(batching.address) as client:
        calls = [client.start(infer_message(model, {"x": x})) for x in xs]
        for x, call in zip(xs, calls, strict=True):
            (expected,) = session.run(None, {"x": x})
            (answer,) = arrays(call.result()).values()
            assert np.allclose(answer, expected, rtol=1e-4, atol=1e-5)
        (stats,) = client.ask("ModelStatistics", name=model).model_stats
    assert max(each.batch_size for each in stats.batch_stats) > 3
    assert stats.inference_count == sum(len(x) for x in xs)
    assert stats.execution_count < len(xs)
    assert stats.execution_count == sum(each.compute_infer.count for each in stats.batch_stats)
    assert stats.inference_count == sum(
        each.batch_size * each.compute_infer.count for each in stats.batch_stats
    )
    counts = stats.inference_stats
    assert counts.success.count == len(xs)
    assert {each.count for each in (counts.compute_input, counts.compute_infer)} == {len(xs)}


def test_the_urgent_go_first(batching: Server) -> None:
    """1 before 2, which is the default here; priorities are unsigned, as Triton's clients send."""
    ended: list[str] = []
    with RpcClient(batching.address) as client:
        busy = Busy(client, batching, "levels")
        calls = {name: busy.ask(index) for index, name in enumerate("abc", 1)}
        calls["urgent"] = busy.ask(4, priority=b"\x01")
        for name, call in calls.items():
            call.add_done_callback(lambda _, name=name: ended.append(name))
        for call in (*busy.ahead, *calls.values()):
            call.result()
    assert ended.index("urgent") < 2


def test_what_waits_too_long_is_told_so(batching: Server) -> None:
    """By the request's own timeout, in microseconds; Triton's words and code."""
    with RpcClient(batching.address) as client:
        busy = Busy(client, batching, "timed")
        patient, hasty = busy.ask(1), busy.ask(2, timeout=1000)
        assert told(hasty) == (Code.UNAVAILABLE, "Request timeout expired")
        assert busy.num_dropped("timeout") == 1
        patient.result()


@pytest.mark.parametrize("way", ["parameter", "metadata"])
def test_only_the_latest_of_a_source_waits(batching: Server, way: str) -> None:
    """The others end at once with a status of their own; other sources are not touched."""

    def wish(source: str) -> dict[str, Any]:
        if way == "parameter":
            return {"stream_id": source}
        return {"metadata": (("headrace-stream-id", source),)}

    with RpcClient(batching.address) as client:
        busy = Busy(client, batching, "latest")
        old, other = busy.ask(1, **wish("cam 1")), busy.ask(2, **wish("cam 2"))
        new = busy.ask(2, **wish("cam 1"))
        code, text = told(old)
        assert code is Code.ABORTED
        assert "cam 1" in text
        assert busy.num_dropped("superseded") == 1
        new.result()
        other.result()


def test_a_queue_has_its_own_bound_and_makes_room_for_others(batching: Server) -> None:
    """A full queue refuses whose share is used up, and gives one up for who has none yet."""
    with RpcClient(batching.address) as client:
        busy = Busy(client, batching, "short")
        flood = [busy.ask(index, stream_id="flood") for index in (1, 2)]
        code, text = told(busy.ask(2, stream_id="flood"))
        assert (code, text[:27]) == (Code.UNAVAILABLE, "Exceeds maximum queue size:")
        other = busy.ask(2, stream_id="other")
        assert told(flood[1])[0] is Code.UNAVAILABLE
        assert busy.num_dropped("displaced") == 1
        flood[0].result()
        other.result()


def test_a_source_must_be_one(batching: Server) -> None:
    """Whatever is wrong with it is said, and nothing runs."""
    long, text = "x" * 200, "has 200 characters, expected at most 128"
    with RpcClient(batching.address) as client:
        for call in (
            start(client, "latest", stream_id=long),
            start(client, "latest", metadata=(("headrace-stream-id", long),)),
        ):
            code, details = told(call)
            assert code is Code.INVALID_ARGUMENT
            assert text in details
        code, details = told(start(client, "latest", stream_id=1.5))
        assert (code, "expected int64 or string" in details) == (Code.INVALID_ARGUMENT, True)
