"""Names that clients choose, in every RPC: they reach no path, shell, format string or log line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2
from tritonclient.grpc import service_pb2 as pb

from helpers.rpc_client import SERVICE, RpcClient
from helpers.server import NO_DEBUG, Server, serving
from load.models import write_repository

FORGED = "2026-01-01T00:00:00.000Z ERROR headrace: forged by a client"
HOSTILE = {
    "up": "../../../../etc/passwd",
    "absolute": "/etc/passwd",
    "up, encoded": "..%2f..%2fetc%2fpasswd",
    "backslashes": "..\\..\\secret",
    "a dot": ".",
    "two dots": "..",
    "a zero": "identity_fp32\0.evil",
    "a shell": "$(touch {made});`touch {made}`;touch {made}|touch {made}&touch {made}",
    "an option": "--model-repository=/",
    "percent": "%s%n%x%(name)s%99999999d",
    "braces": "{0.__class__.__mro__} {config} ${HOME} {{",
    "a template": "{{7*7}} #{7*7} <%= 7*7 %>",
    "a line": f"x\n{FORGED}",
    "a return": f"x\r{FORGED}",
    "other lines": f"x\u2028{FORGED}\u0085{FORGED}",
    "colours": "\x1b[2J\x1b[31mred",
    "right to left": "\u202etxt.exe",
    "a URL": "http://169.254.169.254/latest/meta-data",
    "a pipe": "|id",
    "long": "a" * 200_000,
    "not Unicode at all": "\ufffd\ufffe\uffff",
}
LOG_LINE = re.compile(r"^\d{4}-\d\d-\d\dT[\d:.]+Z (DEBUG|INFO|WARNING|ERROR|CRITICAL) [\w.]+: ")
WITHOUT_TIME = re.compile(r"^(  \| |headrace |  |[│┃┏┡└├╭╰─ ]|\s*$)")  # a traceback, the banner


@pytest.fixture(scope="module", params=["grpcio", "native"])
def logging_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """A server that logs all that it can, in a folder of its own."""
    folder = write_repository(tmp_path_factory.mktemp("models"), ["pair"])
    flags = ("--model-repository", folder, "--transport", request.param, "--log-verbose", "1")
    with serving(*flags, env=NO_DEBUG) as server:
        yield server


def requests(name: str) -> Iterator[tuple[str, Any]]:
    """Every RPC with the name in each of its texts, one after the other."""
    yield "ModelReady", pb.ModelReadyRequest(name=name)
    yield "ModelReady", pb.ModelReadyRequest(name="pair", version=name)
    yield "ModelMetadata", pb.ModelMetadataRequest(name=name)
    yield "ModelMetadata", pb.ModelMetadataRequest(name="pair", version=name)
    yield "ModelConfig", pb.ModelConfigRequest(name=name)
    yield "ModelConfig", pb.ModelConfigRequest(name="pair", version=name)
    yield "ModelStatistics", pb.ModelStatisticsRequest(name=name)
    yield "ModelStatistics", pb.ModelStatisticsRequest(name="pair", version=name)
    yield "RepositoryIndex", pb.RepositoryIndexRequest(repository_name=name)
    yield "RepositoryModelLoad", _load(name)
    yield "RepositoryModelLoad", _load("pair", {name: pb.ModelRepositoryParameter(bool_param=True)})
    config = {"config": pb.ModelRepositoryParameter(string_param=name)}
    yield "RepositoryModelLoad", _load("pair", config)
    file = {f"file:{name}": pb.ModelRepositoryParameter(bytes_param=b"data")}
    yield "RepositoryModelLoad", _load("pair", file)
    yield "RepositoryModelUnload", pb.RepositoryModelUnloadRequest(model_name=name)
    yield (
        "SystemSharedMemoryRegister",
        pb.SystemSharedMemoryRegisterRequest(name=name, key=name, byte_size=8),
    )
    yield "SystemSharedMemoryStatus", pb.SystemSharedMemoryStatusRequest(name=name)
    yield "SystemSharedMemoryUnregister", pb.SystemSharedMemoryUnregisterRequest(name=name)
    yield "CudaSharedMemoryStatus", pb.CudaSharedMemoryStatusRequest(name=name)
    yield "CudaSharedMemoryUnregister", pb.CudaSharedMemoryUnregisterRequest(name=name)
    yield "TraceSetting", _trace(name)
    yield "LogSettings", _log(name)
    yield from (("ModelInfer", message) for message in _infers(name))


def _load(name: str, parameters: dict[str, Any] | None = None) -> Any:
    request = pb.RepositoryModelLoadRequest(model_name=name)
    for key, value in (parameters or {}).items():
        request.parameters[key].CopyFrom(value)
    return request


def _trace(name: str) -> Any:
    request = pb.TraceSettingRequest(model_name=name)
    request.settings["trace_file"].value.append(name)
    return request


def _log(name: str) -> Any:
    request = pb.LogSettingsRequest()
    request.settings["log_file"].string_param = name
    return request


def _infers(name: str) -> Iterator[Any]:
    def one(**fields: Any) -> Any:
        return pb.ModelInferRequest(**{"model_name": "pair", "id": "1", **fields})

    tensor = pb.ModelInferRequest.InferInputTensor
    output = pb.ModelInferRequest.InferRequestedOutputTensor
    yield one(model_name=name)
    yield one(model_version=name)
    yield one(id=name)
    yield one(inputs=[tensor(name=name, datatype="FP32", shape=[1])], raw_input_contents=[bytes(4)])
    yield one(inputs=[tensor(name="a", datatype=name, shape=[1, 4])])
    yield one(outputs=[output(name=name)])
    request = one()
    request.parameters[name].string_param = name
    yield request
    shared = tensor(name="a", datatype="FP32", shape=[1, 4])
    shared.parameters["shared_memory_region"].string_param = name
    yield one(inputs=[shared])


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_names(logging_server: Server, text: str, tmp_path: Path) -> None:
    """Each call ends by itself with a short text; nothing is made, no line of the log forged."""
    made = tmp_path / "made"
    name = text.replace("{made}", str(made))
    before = len(logging_server.output())
    with RpcClient(logging_server.address) as client:
        for method, request in requests(name):
            call: Any = client.channel.unary_unary(f"{SERVICE}{method}").future(
                request.SerializeToString(), timeout=20
            )
            code, told = call.code(), call.details() or ""
            assert code not in {grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN}, (method, told)
            assert len(told) <= 4096
            assert "root:" not in told  # a line of /etc/passwd
            assert "Traceback" not in told
        check = health_pb2.HealthCheckRequest(service=name)
        with pytest.raises(grpc.RpcError):
            client.health.Check(check, timeout=20)
        assert client.ask("ServerLive").live
    assert not made.exists()
    written = logging_server.output()[before:]
    assert written.isascii() or all(char.isprintable() or char == "\n" for char in written)
    for line in written.splitlines():
        assert not line.startswith(FORGED)
        assert LOG_LINE.match(line) or WITHOUT_TIME.match(line), line
