"""Compression both ways: what clients send is unpacked within the limit, replies as they accept."""

from __future__ import annotations

import gzip
import queue
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from tritonclient.grpc import service_pb2 as pb
from tritonclient.utils import InferenceServerException

from helpers import process_tree
from helpers.bombs import gzip_zeros
from helpers.messages import GOOD, infer, tensor
from helpers.raw_http2 import Answer, RawHttp2, frame
from helpers.rpc_client import SERVICE
from helpers.server import Server, ServerPool

RESOURCE_EXHAUSTED, INVALID_ARGUMENT = 8, 3
LIMIT_BYTES = 8 << 20  # of the server that is bombed
SIZES = [(1, 64), (1, 3, 224, 224), (1, 3, 1000, 1000)]


@pytest.fixture
def server(transport: str, servers: ServerPool, quick_repository: Path) -> Server:
    """A server as it is by default."""
    return servers.get("--model-repository", quick_repository, "--transport", transport)


def pixels(shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Half noise, half zeros: it can be compressed, but not away."""
    values = np.random.default_rng(7).integers(0, 256, shape, np.uint8)
    values[..., : shape[-1] // 2] = 0
    return values


def ask(values: np.ndarray[Any, Any]) -> triton.InferInput:
    wanted = triton.InferInput("x", list(values.shape), "UINT8")
    wanted.set_data_from_numpy(values)
    return wanted


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
@pytest.mark.parametrize("shape", SIZES, ids=str)
def test_requests_of_tritonclient(
    server: Server, transport: str, algorithm: str, shape: tuple[int, ...]
) -> None:
    """Its own `compression_algorithm`, from what is unpacked at once to what needs a thread."""
    values = pixels(shape)
    with triton.InferenceServerClient(server.address) as client:

        def call() -> Any:
            flat = [ask(values.reshape(1, -1))]
            return client.infer("identity_uint8", flat, compression_algorithm=algorithm)

        if transport == "native" and algorithm == "deflate":  # it has gzip only, and says so
            with pytest.raises(InferenceServerException, match="UNIMPLEMENTED.*deflate"):
                call()
            return
        reply = call()
    np.testing.assert_array_equal(reply.as_numpy("y").ravel(), values.ravel())


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_a_stream_of_tritonclient(server: Server, algorithm: str) -> None:
    """Every message of it is unpacked, small ones and large ones, in order."""
    replies: queue.Queue[Any] = queue.Queue()
    frames = [pixels(SIZES[index % len(SIZES)]).reshape(1, -1) for index in range(9)]
    with triton.InferenceServerClient(server.address) as client:
        client.start_stream(
            lambda result, error: replies.put(error or result), compression_algorithm=algorithm
        )
        for index, values in enumerate(frames):
            client.async_stream_infer("identity_uint8", [ask(values)], request_id=str(index))
        for index, values in enumerate(frames):
            reply = replies.get(timeout=20)
            assert reply.get_response().id == str(index)
            np.testing.assert_array_equal(reply.as_numpy("y"), values)
        client.stop_stream()


def test_every_other_rpc_takes_it(server: Server) -> None:
    """Admin RPCs, health and reflection: a client may compress all that it sends."""
    name = "x" * 2000  # long enough to be worth it
    health = health_pb2.HealthCheckRequest(service=name)
    listed = reflection_pb2.ServerReflectionRequest(file_by_filename=name)
    asked: dict[str, tuple[Any, int]] = {
        f"{SERVICE}ModelReady": (pb.ModelReadyRequest(name=name), 0),
        f"{SERVICE}ModelMetadata": (pb.ModelMetadataRequest(name=name), 5),
        "/grpc.health.v1.Health/Check": (health, 5),
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": (listed, 0),
    }
    with RawHttp2(server.address) as client:
        for path, (message, status) in asked.items():
            stream = client.open(path, extra=[("grpc-encoding", "gzip")])
            client.send(stream, frame(gzip.compress(message.SerializeToString()), compressed=True))
            assert client.wait(stream).grpc_status == status, path


def peak_bytes(server: Server) -> int:
    """The most memory that the server has had resident."""
    status = Path(f"/proc/{server.pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def send(
    server: Server, body: bytes, path: str = f"{SERVICE}ModelInfer", encoding: str = "gzip"
) -> Answer:
    with RawHttp2(server.address) as client:
        stream = client.open(path, extra=[("grpc-encoding", encoding)])
        client.send(stream, frame(body, compressed=True))
        return client.wait(stream)


@pytest.fixture
def guarded(servers: ServerPool, quick_repository: Path) -> Server:
    """A server of its own, so that its highest memory is this test's; a limit of 8 MiB."""
    flags = ("--grpc-max-request-bytes", str(LIMIT_BYTES), "--server-id", "bombed")
    return servers.get("--model-repository", quick_repository, *flags)


BOMBED = ["ModelInfer", "ModelConfig", "ModelStreamInfer", "RepositoryIndex"]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", BOMBED)
def test_a_bomb_of_a_gibibyte_takes_no_more_than_the_limit(guarded: Server, name: str) -> None:
    """1 MB that unpacks to 1 GiB, eight times: refused, and the peak is that of the limit.

    Two threads unpack, and each may hold the limit twice while it joins what it has.
    """
    bomb = gzip_zeros(1024)
    assert send(guarded, gzip.compress(GOOD)).grpc_status == 0
    before = peak_bytes(guarded)
    with RawHttp2(guarded.address) as client:
        streams = [
            client.open(f"{SERVICE}{name}", extra=[("grpc-encoding", "gzip")]) for _ in range(8)
        ]
        for stream in streams:
            client.send(stream, frame(bomb, compressed=True))
        answers = [client.wait(stream) for stream in streams]
    for answer in answers:
        if name == "ModelStreamInfer":  # in band, as every error of a stream
            assert b"larger than max" in answer.data
        else:
            assert answer.grpc_status == RESOURCE_EXHAUSTED
            assert "larger than max" in answer.grpc_message
    assert send(guarded, gzip.compress(GOOD)).grpc_status == 0
    assert peak_bytes(guarded) - before < 2 * 2 * LIMIT_BYTES + 8 * len(bomb) + 30e6
    assert process_tree.rss_bytes(guarded.pid) < before + 60e6


def test_bombs_for_health_and_reflection(guarded: Server) -> None:
    """They are asked by names, so a few kilobytes are the limit."""
    bomb = gzip_zeros(1)
    answer = send(guarded, bomb, "/grpc.health.v1.Health/Check")
    assert answer.grpc_status == INVALID_ARGUMENT
    path = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
    assert send(guarded, bomb, path).grpc_status not in {0, None}


@pytest.mark.parametrize(
    "body",
    [gzip.compress(GOOD)[:-1], gzip.compress(GOOD) + b"\0", gzip.compress(GOOD)[:8] + GOOD],
    ids=["cut", "trailed", "not gzip"],
)
def test_what_cannot_be_unpacked(guarded: Server, body: bytes) -> None:
    """The caller's fault, with a text."""
    answer = send(guarded, body)
    assert answer.grpc_status == INVALID_ARGUMENT
    assert "compressed%20message" in answer.grpc_message or "compressed" in answer.grpc_message
    assert send(guarded, zlib.compress(GOOD), encoding="deflate").grpc_status == 0


@pytest.fixture
def compressing(servers: ServerPool, quick_repository: Path) -> Callable[[str], Server]:
    def at_level(level: str) -> Server:
        flag = ("--grpc-infer-response-compression-level", level)
        return servers.get("--model-repository", quick_repository, *flag)

    return at_level


@pytest.mark.parametrize(
    ("level", "accepted", "expected"),
    [
        ("none", "gzip,deflate", None),
        ("low", "identity,deflate,gzip", "gzip"),
        ("high", "identity,deflate,gzip", "deflate"),
        ("high", "gzip", "gzip"),
        ("high", "identity", None),
        ("high", "br", None),
        ("high", "", None),
    ],
)
def test_replies_are_compressed_as_the_client_accepts(
    compressing: Callable[[str], Server], level: str, accepted: str, expected: str | None
) -> None:
    """Triton's levels; who accepts nothing gets it plain, and all get the same bytes."""
    message = infer("identity_uint8", [tensor("x", "UINT8", [1, 5000])], [bytes(5000)])
    with RawHttp2(compressing(level).address) as client:
        extra = [("grpc-accept-encoding", accepted)] if accepted else []
        stream = client.open(extra=extra)
        client.send(stream, frame(message))
        answer = client.wait(stream)
    assert answer.headers.get("grpc-encoding") == expected
    assert answer.data[0] == (expected is not None)
    body = answer.message
    if expected is not None:
        assert len(body) < 500
        body = zlib.decompress(body, zlib.MAX_WBITS | 32)
    reply = pb.ModelInferResponse.FromString(body)
    assert reply.raw_output_contents[0] == bytes(5000)


def test_compressed_replies_reach_tritonclient(compressing: Callable[[str], Server]) -> None:
    """It unpacks them by itself."""
    values = pixels((1, 50_000))
    with triton.InferenceServerClient(compressing("high").address) as client:
        reply = client.infer("identity_uint8", [ask(values)])
    np.testing.assert_array_equal(reply.as_numpy("y"), values)


def test_a_channel_that_compresses_everything(server: Server) -> None:
    """GRPC's own switch for a whole channel."""
    options: dict[str, Any] = {"compression": grpc.Compression.Gzip}
    with grpc.insecure_channel(server.address, **options) as channel:
        method: Any = channel.unary_unary(f"{SERVICE}ModelInfer")
        assert pb.ModelInferResponse.FromString(method(GOOD, timeout=20)).model_name == "pair"
