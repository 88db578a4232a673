"""The response cache over a socket, on both transports: who gets which reply, and what is counted.

`noisy` adds random numbers, so that a reply tells whether the model ran for it.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tritonclient.grpc as triton
from onnx import helper
from tritonclient.grpc import service_pb2 as pb

from helpers.onnx_models import FLOAT, adds, model, port, save
from helpers.rpc_client import RpcClient, infer_message
from helpers.scrape import Scrape
from helpers.server import HEADRACE, Server, ServerPool, serving
from helpers.stream_client import Stream, outputs

MAX_BYTES = 1 << 18
CACHE = ("--cache-config", f"local,size={MAX_BYTES}")
CONFIG = "max_batch_size: 8 response_cache { enable: true }"
Array = np.ndarray[Any, np.dtype[np.float32]]


def noisy(seed: float) -> onnx.ModelProto:
    """`x` [batch, 4] and as many random numbers; models draw the same ones but for their seed."""
    return model(
        [
            helper.make_node("RandomNormalLike", ["x"], ["noise"], seed=seed),
            helper.make_node("Add", ["x", "noise"], ["y"]),
        ],
        [port("x", FLOAT, ["batch", 4])],
        [port("y", FLOAT, ["batch", 4])],
    )


@pytest.fixture(scope="session")
def noisy_repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`noisy` with a cache, in batches and alone; `plain` without one."""
    folder = tmp_path_factory.mktemp("noisy-models")
    for seed, (name, config) in enumerate(
        (
            ("noisy", CONFIG),
            ("batched", CONFIG + " dynamic_batching { }"),
            ("plain", "max_batch_size: 8"),
        )
    ):
        save(noisy(100.0 * seed + 7.0), folder / name / "1/model.onnx")
        (folder / name / "config.pbtxt").write_text(config)
    save(adds(2), folder / "adds/1/model.onnx")
    (folder / "adds/config.pbtxt").write_text(CONFIG)
    return folder


@pytest.fixture
def caching(transport: str, servers: ServerPool, noisy_repository: Path) -> Server:
    """A server with these models and a cache of 256 KiB."""
    return servers.get("--model-repository", noisy_repository, "--transport", transport, *CACHE)


@pytest.fixture
def cached(caching: Server) -> Iterator[RpcClient]:
    """Its client."""
    with RpcClient(caching.address) as client:
        yield client


@pytest.fixture
def row(request: pytest.FixtureRequest) -> Array:
    """A row that no other test asks for."""
    seed = np.frombuffer(request.node.name.encode(), np.uint8)
    return np.random.default_rng(seed).normal(size=(1, 4)).astype(np.float32)


def ask(client: RpcClient, name: str, x: Array) -> bytes:
    return client.infer(name, {"x": x})["y"].tobytes()


@pytest.mark.parametrize("name", ["noisy", "batched"])
def test_the_same_question_has_the_same_answer(cached: RpcClient, row: Array, name: str) -> None:
    """Another question, another model and a model without a cache are asked anew."""
    answer = ask(cached, name, row)
    assert [ask(cached, name, row) for _ in range(5)] == [answer] * 5
    assert ask(cached, name, -row) != answer
    assert ask(cached, name, np.concatenate([row, row])) != answer * 2
    assert len({ask(cached, "plain", row) for _ in range(5)}) == 5
    assert ask(cached, {"noisy": "batched", "batched": "noisy"}[name], row) != answer


def test_answers_are_right(cached: RpcClient, row: Array) -> None:
    """The first and the kept ones, each to its own question."""
    for _ in range(3):
        for sign in (1, -1):
            for rows in (1, 3):
                x = np.repeat(sign * row, rows, axis=0)
                np.testing.assert_array_equal(cached.infer("adds", {"x": x})["y"], x + 2)


def test_ids_and_outputs_as_tritonclient_asks_for_them(caching: Server, row: Array) -> None:
    """Each caller's own id; classes are another answer than the tensor."""
    x = triton.InferInput("x", row.shape, "FP32")
    x.set_data_from_numpy(row)
    with triton.InferenceServerClient(caching.address) as client:
        replies = [client.infer("noisy", [x], request_id=name) for name in ("1", "", "three")]
        assert [reply.get_response().id for reply in replies] == ["1", "", "three"]
        values = replies[0].as_numpy("y")
        for reply in replies[1:]:
            np.testing.assert_array_equal(reply.as_numpy("y"), values)
        classes = [triton.InferRequestedOutput("y", class_count=2)]
        best = [client.infer("noisy", [x], outputs=classes).as_numpy("y") for _ in range(2)]
        assert best[0].shape == (1, 2)
        assert best[0].tolist() == best[1].tolist()


def test_streams_and_calls_share_the_answers(cached: RpcClient, row: Array) -> None:
    """In the order of the requests, with their ids."""
    answer = ask(cached, "noisy", row)
    stream = Stream(cached)
    rows = [row, -row, row, -row]
    stream.send(infer_message("noisy", {"x": rows[1]}, request_id="first"))
    first = stream.read()
    for index, x in enumerate(rows):
        stream.send(infer_message("noisy", {"x": x}, request_id=str(index)))
    replies = stream.rest()
    assert [reply.infer_response.id for reply in replies] == ["0", "1", "2", "3"]
    assert all(
        reply.infer_response.parameters["triton_final_response"].bool_param for reply in replies
    )
    other = outputs(first)["y"].tobytes()
    assert [outputs(reply)["y"].tobytes() for reply in replies] == [answer, other, answer, other]
    assert ask(cached, "noisy", -row) == other


def statistics(client: RpcClient, name: str) -> Any:
    return client.ask("ModelStatistics", name=name).model_stats[0]


def test_what_is_counted(caching: Server, cached: RpcClient, row: Array) -> None:
    """As Triton counts: a hit is a success, and neither an inference nor an execution."""
    before, started = statistics(cached, "noisy"), Scrape(caching.metrics_address)
    x = np.concatenate([row, row])
    for _ in range(4):
        ask(cached, "noisy", x)
    after, reading = statistics(cached, "noisy"), Scrape(caching.metrics_address)
    assert after.inference_count - before.inference_count == 2
    assert after.execution_count - before.execution_count == 1
    grown = {
        name.name: getattr(after.inference_stats, name.name).count
        - getattr(before.inference_stats, name.name).count
        for name in pb.InferStatistics.DESCRIPTOR.fields
    }
    run = dict.fromkeys(("compute_input", "compute_infer", "compute_output", "cache_miss"), 1)
    assert grown == {**run, "success": 4, "queue": 4, "fail": 0, "cache_hit": 3}
    assert after.inference_stats.cache_hit.ns > before.inference_stats.cache_hit.ns

    def shown(name: str) -> float:
        labels = {"model": "noisy"} if name.endswith("per_model") else {}
        return reading(name, **labels) - started(name, **labels)

    assert shown("nv_cache_num_hits_per_model") == 3
    assert shown("nv_cache_num_misses_per_model") == 1
    assert shown("nv_cache_hit_duration_per_model") > 0
    assert shown("nv_cache_miss_duration_per_model") > 0
    assert reading("headrace_cache_entries") > 0
    assert reading("headrace_cache_bytes") < reading("headrace_cache_max_bytes") == MAX_BYTES
    assert {labels[0] for labels in reading.labels("nv_cache_num_hits")} == {"model"}
    models = {
        labels["model"]
        for name, labels, _ in reading.samples
        if name.startswith("nv_cache_num_hits")
    }
    assert models == {"noisy", "batched", "adds"}


def test_more_than_it_holds(caching: Server, cached: RpcClient) -> None:
    """What was asked long ago is asked of the model again; the bytes stay within the bound."""
    rows = np.random.default_rng(5).normal(size=(600, 1, 4)).astype(np.float32)
    first = ask(cached, "noisy", rows[0])
    for some in np.split(rows, 4):  # fewer than may wait
        for call in [cached.start(infer_message("noisy", {"x": x})) for x in some]:
            call.result()
    reading = Scrape(caching.metrics_address)
    assert reading("headrace_cache_evictions_total") > 0
    assert MAX_BYTES / 2 < reading("headrace_cache_bytes") <= MAX_BYTES
    assert ask(cached, "noisy", rows[0]) != first


def test_a_version_that_is_loaded_anew_has_answers_of_its_own(
    tmp_path: Path, transport: str, row: Array
) -> None:
    """However often the old one was asked; what that kept is gone."""
    path = tmp_path / "m/1/model.onnx"
    save(adds(1), path)
    (path.parents[1] / "config.pbtxt").write_text(CONFIG)
    options = ("--transport", transport, "--model-control-mode=explicit", "--load-model=m")
    with (
        serving("--model-repository", tmp_path, *options, *CACHE) as server,
        RpcClient(server.address) as client,
        triton.InferenceServerClient(server.address) as admin,
    ):
        for value in (1, 5):
            save(adds(value), path)
            if value > 1:
                admin.load_model("m")
            for _ in range(3):
                np.testing.assert_array_equal(client.infer("m", {"x": row})["y"], row + value)
        Scrape.when(server.metrics_address, lambda seen: seen("headrace_cache_entries") == 1)
        admin.unload_model("m")
        Scrape.when(server.metrics_address, lambda seen: seen("headrace_cache_bytes") == 0)


def test_without_a_cache_every_request_runs(tmp_path: Path, noisy_repository: Path) -> None:
    """And the operator is told that a model asks for one."""
    with (
        serving("--model-repository", noisy_repository) as server,
        RpcClient(server.address) as client,
    ):
        row = np.ones((1, 4), np.float32)
        assert len({ask(client, "noisy", row) for _ in range(5)}) == 5
        assert "noisy: response_cache.enable is set, but this server keeps no replies" in (
            server.output()
        )
        names = {name for name, _, _ in Scrape(server.metrics_address).samples}
        assert "headrace_cache_bytes" not in names


def test_a_cache_that_is_not_there_is_refused() -> None:
    """Before anything is loaded."""
    command = [str(HEADRACE), "serve", "x.onnx", "--cache-config", "redis,host=here"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode != 0
    assert "--cache-config: got 'redis,host=here', expected local,size=BYTES" in ended.stderr
