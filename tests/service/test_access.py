"""Tokens and restricted protocols over real sockets: who is let in, on which RPCs, by what."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from tritonclient.utils import InferenceServerException

from helpers import onnx_models
from helpers.messages import GOOD
from helpers.raw_http2 import INFER, RawHttp2, frame
from helpers.rpc_client import SERVICE, RpcClient, refused
from helpers.server import NO_DEBUG, Server, ServerPool, serving

TOKEN, OTHER = "first-token-0123456789", "second-token-0123456789"
SECRET = "s3cret-value"
HEADER = "triton-grpc-protocol-infer-key"
UNAUTHENTICATED, UNAVAILABLE, UNIMPLEMENTED, NOT_FOUND = 16, 14, 12, 5


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return onnx_models.save(onnx_models.adds(1), tmp_path_factory.mktemp("m") / "adds.onnx")


@pytest.fixture(scope="module")
def token_file(model: Path) -> Path:
    """The tokens of the servers that are shared."""
    path = model.with_name("tokens")
    path.write_text(f"cam:{TOKEN}\n")
    return path


@pytest.fixture
def guarded(transport: str, model: Path, token_file: Path, servers: ServerPool) -> Server:
    """A server that asks for tokens, and logs all that it can."""
    flags = ("--transport", transport, "--grpc-auth-token-file", token_file, "--log-verbose", "2")
    return servers.get(model, *flags)


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def infer(client: Any, headers: dict[str, str] | None = None) -> Any:
    x = triton.InferInput("x", [1, 4], "FP32")
    x.set_data_from_numpy(np.array([[41, 0, 0, 0]], np.float32))
    return client.infer("adds", [x], headers=headers).as_numpy("y")


def outcome(call: Callable[..., Any], *arguments: Any, **named: Any) -> str:
    """How a call ended: OK, or the status of tritonclient's exception."""
    try:
        call(*arguments, **named)
    except InferenceServerException as error:
        return str(error.status()).removeprefix("StatusCode.")
    return "OK"


def calls(client: Any) -> dict[str, Callable[..., Any]]:
    """Tritonclient's calls, one for each RPC that it knows, by their group."""
    return {
        "health/live": client.is_server_live,
        "health/ready": client.is_server_ready,
        "health/model": lambda **more: client.is_model_ready("adds", **more),
        "metadata/server": client.get_server_metadata,
        "metadata/model": lambda **more: client.get_model_metadata("adds", **more),
        "model-config": lambda **more: client.get_model_config("adds", **more),
        "inference": lambda **more: infer(client, **more),
        "statistics": client.get_inference_statistics,
        "model-repository": client.get_model_repository_index,
        "trace": client.get_trace_settings,
        "logging": client.get_log_settings,
        "shared-memory/system": client.unregister_system_shared_memory,
        "shared-memory/cuda": client.unregister_cuda_shared_memory,
    }


def test_without_a_token_only_health_is_told(guarded: Server) -> None:
    """Every other RPC of tritonclient ends with UNAUTHENTICATED; with a token none does."""
    with triton.InferenceServerClient(guarded.address) as client:
        for name, call in calls(client).items():
            expected = "OK" if name.startswith("health") else "UNAUTHENTICATED"
            assert outcome(call) == expected, name
            assert outcome(call, headers=bearer(OTHER)) == expected, name
            assert outcome(call, headers=bearer(TOKEN)) in {"OK", "UNIMPLEMENTED"}, name
        assert infer(client, bearer(TOKEN)).tolist() == [[42, 1, 1, 1]]
    with RpcClient(guarded.address) as plain:
        assert plain.check() == 1


def test_streams_and_reflection_ask_for_it_too(guarded: Server) -> None:
    """The one is refused before a message is read, the other could tell what there is."""
    with grpc.insecure_channel(guarded.address) as channel:
        stream: Any = channel.stream_stream(f"{SERVICE}ModelStreamInfer")
        with pytest.raises(grpc.RpcError) as error:
            next(stream(iter([GOOD]), timeout=20))
        assert refused(error.value)[0] is grpc.StatusCode.UNAUTHENTICATED
        stub: Any = reflection_pb2_grpc.ServerReflectionStub(channel)
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        with pytest.raises(grpc.RpcError) as error:
            next(stub.ServerReflectionInfo(iter([request]), timeout=20))
        assert refused(error.value)[0] is grpc.StatusCode.UNAUTHENTICATED
        metadata = tuple(bearer(TOKEN).items())
        answer = next(stub.ServerReflectionInfo(iter([request]), timeout=20, metadata=metadata))
        assert len(answer.list_services_response.service) == 3


@pytest.mark.parametrize("path", ["/no.such/Rpc", INFER.lower(), "/", INFER + "/", INFER + "?a=b"])
def test_unknown_paths_tell_nothing(guarded: Server, path: str) -> None:
    """Whoever has no token cannot find out what there is."""
    with RawHttp2(guarded.address) as client:
        stream = client.open(path)
        client.send(stream, frame(GOOD))
        assert client.wait(stream).grpc_status == UNAUTHENTICATED


def test_tokens_are_in_no_log_and_are_counted(guarded: Server) -> None:
    """Neither right nor wrong ones, not even where everything is logged."""
    with triton.InferenceServerClient(guarded.address) as client:
        assert outcome(infer, client, headers=bearer(OTHER)) == "UNAUTHENTICATED"
        infer(client, bearer(TOKEN))
    assert TOKEN not in guarded.output()
    assert OTHER not in guarded.output()
    figures = guarded.metrics()
    assert figures["headrace_token_calls_total"] >= 1
    assert figures["headrace_access_refused_total"] >= 1


def test_a_new_file_is_taken_and_a_broken_one_is_not(
    transport: str, model: Path, tmp_path: Path
) -> None:
    """Tokens are renewed while the server runs."""
    path = tmp_path / "tokens"
    path.write_text(f"cam:{TOKEN}\n")
    flags = ("--transport", transport, "--grpc-auth-token-file", path)
    with (
        serving(model, *flags, env=NO_DEBUG) as server,
        triton.InferenceServerClient(server.address) as client,
    ):
        infer(client, bearer(TOKEN))
        path.write_text(f"cam:{OTHER}\n")
        until = monotonic() + 10
        while outcome(infer, client, headers=bearer(OTHER)) != "OK":
            assert monotonic() < until
        assert outcome(infer, client, headers=bearer(TOKEN)) == "UNAUTHENTICATED"
        path.write_text("")
        while server.metrics()["headrace_access_reloads_total"] < 2:
            assert outcome(infer, client, headers=bearer(OTHER)) == "OK"
            assert monotonic() < until
        assert "holds no token" in server.output()


def test_health_can_be_closed(transport: str, model: Path, token_file: Path) -> None:
    """Then all of it asks for a token."""
    flags = ("--transport", transport, "--grpc-auth-token-file", token_file, "--grpc-auth-health")
    with serving(model, *flags) as server, RpcClient(server.address) as client:
        with pytest.raises(grpc.RpcError) as error:
            client.check()
        assert refused(error.value)[0] is grpc.StatusCode.UNAUTHENTICATED
        with triton.InferenceServerClient(server.address) as other:
            assert outcome(other.is_server_live) == "UNAUTHENTICATED"
            assert other.is_server_live(headers=bearer(TOKEN))


@pytest.fixture
def restricted(transport: str, model: Path, servers: ServerPool) -> Server:
    """A server of which inference, metadata, statistics and shared memory are restricted."""
    flags = (
        *("--grpc-restricted-protocol", f"inference,metadata:infer-key={SECRET}"),
        *("--grpc-restricted-protocol", "statistics,shared-memory:Admin-Key=another"),
    )
    return servers.get(model, "--transport", transport, *flags)


def test_restricted_protocols_want_their_header(restricted: Server) -> None:
    """By tritonclient's calls: each group its own header, the rest none."""
    inference = {"inference", "metadata/server", "metadata/model"}
    admin = {"statistics", "shared-memory/system", "shared-memory/cuda"}
    first, second = {HEADER: SECRET}, {"triton-grpc-protocol-admin-key": "another"}
    with triton.InferenceServerClient(restricted.address) as client:
        for name, call in calls(client).items():
            wanted = first if name in inference else second if name in admin else None
            closed = "OK" if wanted is None else "UNAVAILABLE"
            for headers in (None, first, second, {HEADER: "guess"}):
                expected = "OK" if headers is not None and headers == wanted else closed
                got = outcome(call, headers=headers)
                assert got == expected or (got == "UNIMPLEMENTED" and expected == "OK"), name
        with pytest.raises(InferenceServerException, match=f"expecting header '{HEADER}'"):
            infer(client)


BYPASSES: dict[str, list[tuple[str, str]]] = {
    "none": [],
    "without the prefix": [("infer-key", SECRET)],
    "the wrong one first": [(HEADER, "guess"), (HEADER, SECRET)],
    "the wrong one last": [(HEADER, SECRET), (HEADER, "guess")],
    "twice": [(HEADER, SECRET), (HEADER, SECRET)],
    "in one, with commas": [(HEADER, f"guess,{SECRET}")],
    "in capitals, beside a wrong one": [(HEADER.title(), SECRET), (HEADER, "guess")],
    "binary": [(HEADER + "-bin", "czNjcmV0LXZhbHVl")],
    "underscores": [(HEADER.replace("-", "_"), SECRET)],
    "longer": [(HEADER, SECRET + "x")],
    "in the path's stead": [("x-original-path", "/"), ("x-http-method-override", "GET")],
}


@pytest.mark.parametrize("headers", BYPASSES.values(), ids=BYPASSES)
@pytest.mark.parametrize(
    "path", [INFER, INFER + "?x", INFER.replace("ModelInfer", "ModelMetadata")]
)
def test_no_header_gets_by(restricted: Server, headers: list[tuple[str, str]], path: str) -> None:
    """On raw HTTP/2: refused by the gate, by HTTP/2 itself, or no such path; never answered."""
    with RawHttp2(restricted.address) as client:
        stream = client.open(path, extra=headers)
        client.send(stream, frame(GOOD))
        answer = client.wait(stream)
    assert answer.grpc_status in {UNAVAILABLE, UNIMPLEMENTED, None}
    assert answer.grpc_status is not None or answer.reset is not None or client.goaway is not None


def test_the_right_header_is_right_on_raw_http2_as_well(restricted: Server) -> None:
    """The other half of the attempts: what they lack is the header, nothing else."""
    with RawHttp2(restricted.address) as client:
        stream = client.open(extra=[(HEADER, SECRET)])
        client.send(stream, frame(GOOD))
        assert client.wait(stream).grpc_status == NOT_FOUND  # the model of GOOD is not here


def test_secrets_are_in_no_output(restricted: Server) -> None:
    """Neither at the start nor later."""
    with RawHttp2(restricted.address) as client:
        client.call(GOOD)
    assert SECRET not in restricted.output()
