"""A repository with a model that cannot be served among others that can."""

from __future__ import annotations

import urllib.error
import urllib.request
from pathlib import Path

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2

from helpers import onnx_models
from helpers.rpc_client import RpcClient, infer_message, refused, told
from helpers.server import Server, ServerPool, start

Code = grpc.StatusCode
Health = health_pb2.HealthCheckResponse
ROW = np.zeros((1, 4), np.float32)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`good`, `other` of two versions with the newer one broken, and `wrong` by its config."""
    folder = tmp_path_factory.mktemp("mixed")
    onnx_models.save(onnx_models.adds(1), folder / "good/1/model.onnx")
    for version in (1, 2):
        onnx_models.save(onnx_models.adds(version), folder / f"other/{version}/model.onnx")
    (folder / "other/2/model.onnx").write_bytes(b"nonsense")
    (folder / "other/config.pbtxt").write_text(onnx_models.VERSIONS_CONFIG)
    onnx_models.save(onnx_models.adds(1), folder / "wrong/1/model.onnx")
    (folder / "wrong/config.pbtxt").write_text('input { name: "z" data_type: TYPE_FP32 dims: 4 }')
    return folder


@pytest.fixture
def server(mixed: Path, servers: ServerPool, transport: str) -> Server:
    return servers.get(
        *("--model-repository", mixed, "--transport", transport, "--exit-on-error=false")
    )


def probe(server: Server, what: str) -> int:
    try:
        url = f"http://{server.metrics_address}/v2/health/{what}"
        with urllib.request.urlopen(url, timeout=5) as reply:
            return int(reply.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_the_others_are_served(server: Server) -> None:
    """With the newest version that works where one does not."""
    with RpcClient(server.address) as client:
        assert client.infer("good", {"x": ROW})["y"].tolist() == [[1.0] * 4]
        assert client.infer("other", {"x": ROW})["y"].tolist() == [[1.0] * 4]


def test_what_is_broken_is_not_ready(server: Server) -> None:
    """UNAVAILABLE, as for a model that is loading: it exists, and may work tomorrow."""
    with RpcClient(server.address) as client:
        for model, version in (("wrong", ""), ("other", "2")):
            call = client.start(infer_message(model, {"x": ROW}, version=version))
            code, text = told(call)
            assert (code, "is not at ready state" in text) == (Code.UNAVAILABLE, True)
            assert not client.ask("ModelReady", name=model, version=version).ready
        with pytest.raises(grpc.RpcError) as caught:
            client.ask("ModelMetadata", name="wrong")
        assert refused(caught.value)[0] is Code.UNAVAILABLE
        assert client.ask("ModelReady", name="good").ready


def test_the_index_tells_why(server: Server, mixed: Path) -> None:
    """With the file and the field."""
    with RpcClient(server.address) as client:
        index = {
            (model.name, model.version): (model.state, model.reason)
            for model in client.ask("RepositoryIndex").models
        }
        ready = client.ask("RepositoryIndex", ready=True).models
    assert {key for key, (state, _) in index.items() if state == "READY"} == {
        ("good", "1"),
        ("other", "1"),
    }
    assert {(model.name, model.version) for model in ready} == {("good", "1"), ("other", "1")}
    state, reason = index["other", "2"]
    assert state == "UNAVAILABLE"
    assert str(mixed / "other/2/model.onnx") in reason
    state, reason = next(value for (name, _), value in index.items() if name == "wrong")
    assert state == "UNAVAILABLE"
    assert str(mixed / "wrong/config.pbtxt") in reason
    assert "input" in reason
    assert "z" in reason


def test_readiness_is_strict(server: Server) -> None:
    """The server is live and not ready; each model that works is."""
    with RpcClient(server.address) as client:
        assert client.ask("ServerLive").live
        assert not client.ask("ServerReady").ready
        assert client.check("") == Health.NOT_SERVING
        assert client.check("good") == Health.SERVING
        assert client.check("wrong") == Health.NOT_SERVING
    assert (probe(server, "live"), probe(server, "ready")) == (200, 503)


def test_readiness_can_be_lenient(mixed: Path, servers: ServerPool) -> None:
    """With --strict-readiness=false it is ready when it answers."""
    lenient = ("--exit-on-error=false", "--strict-readiness=false")
    server = servers.get("--model-repository", mixed, *lenient)
    with RpcClient(server.address) as client:
        assert client.ask("ServerReady").ready
        assert client.check("") == Health.SERVING
        assert not client.ask("ModelReady", name="wrong").ready
    assert probe(server, "ready") == 200


def test_by_default_a_broken_model_ends_the_server(mixed: Path) -> None:
    """With 1, after telling every fault with file, field and reason; nothing was served."""
    server = start("--model-repository", mixed)
    try:
        assert server.process.wait(20) == 1
        server._reader.join(5)
    finally:
        if server.process.poll() is None:
            server.kill()
    output = server.output()
    assert str(mixed / "wrong/config.pbtxt") in output
    assert str(mixed / "other/2/model.onnx") in output
    assert "--exit-on-error=false" in output
    assert "headrace ready" not in output
    assert "Traceback" not in output
