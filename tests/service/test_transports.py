"""What both transports must do alike: deadlines, cancels, slow readers and writers, shut-down."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2 as pb

from helpers.messages import GOOD, infer, tensor
from helpers.raw_http2 import INFER, RawHttp2, frame
from helpers.scrape import Scrape, num_inside
from helpers.server import Server, start
from load.models import CATALOGUE, expected, write_repository
from load.soak import leftovers

UNLIMITED = [("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
FULL_HD = (1, 3, 1080, 1920)
DEADLINE_EXCEEDED = 4


def full_hd(seed: int) -> tuple[bytes, bytes]:
    """(message, pixels) of 6.2 MB to an identity model."""
    pixels = np.random.default_rng(seed).bytes(int(np.prod(FULL_HD)))
    return infer("identity_6mb", [tensor("x", "UINT8", FULL_HD)], [pixels]), pixels


def heavy(rows: int = 4) -> bytes:
    """A request of 64 bytes that computes for tens of milliseconds."""
    x = CATALOGUE["slow"].sample(rows)
    return infer("slow", [tensor("x", "FP32", x.shape)], [x.tobytes()])


def pixels_of(message: bytes) -> bytes:
    """The first output of a reply."""
    raw: bytes = pb.ModelInferResponse.FromString(message).raw_output_contents[0]
    return raw


def test_deadlines_end_calls_on_time(server: Server) -> None:
    """Twenty heavy calls with 60 ms each: those that cannot be served end soon after that."""
    message = heavy()
    with RawHttp2(server.address) as client:
        client.call(message)
        streams = [client.open(extra=[("grpc-timeout", "60m")]) for _ in range(20)]
        for stream in streams:
            client.send(stream, frame(message))
        answers = [client.wait(stream) for stream in streams]
        statuses = [answer.grpc_status for answer in answers]
    assert set(statuses) <= {0, DEADLINE_EXCEEDED}
    assert DEADLINE_EXCEEDED in statuses
    assert leftovers(server) == {}


def test_cancelled_calls_leave_nothing(server: Server) -> None:
    """Twenty heavy calls are cancelled at once: the next call is served, and all is given back."""
    message = heavy()
    with RawHttp2(server.address) as client:
        streams = [client.open() for _ in range(20)]
        for stream in streams:
            client.send(stream, frame(message))
        for stream in streams:
            client.reset(stream)
        assert client.call(GOOD).grpc_status == 0
    assert leftovers(server) == {}
    assert server.metrics()["headrace_queue_length"] == 0


def test_a_connection_that_breaks_leaves_nothing(server: Server) -> None:
    """A client that vanishes amid twenty calls, one of them half sent, costs the others nothing."""
    message = heavy()
    with RawHttp2(server.address) as client:
        for _ in range(20):
            client.send(client.open(), frame(message))
        client.send(client.open(), frame(message)[:50], end=False)
    with RawHttp2(server.address) as other:
        assert other.call(GOOD).grpc_status == 0
    assert leftovers(server) == {}


def test_a_reader_with_a_small_window(server: Server) -> None:
    """A 6 MB reply through a window of 1,000 bytes arrives whole."""
    message, pixels = full_hd(1)
    with RawHttp2(server.address, window_bytes=1_000) as client:
        stream = client.open()
        client.send(stream, frame(message))
        answer = client.wait(stream)
    assert pixels_of(answer.message) == pixels


def test_readers_that_do_not_read(server: Server) -> None:
    """Twenty 6 MB replies that nobody takes hold no block, and others are served meanwhile."""
    message, _ = full_hd(2)
    before = server.rss_bytes()
    with RawHttp2(server.address, window_bytes=1_000) as idle:
        for _ in range(20):
            idle.send(idle.open(), frame(message))
        with RawHttp2(server.address) as other:
            for _ in range(50):
                assert other.call(GOOD).grpc_status == 0
        assert leftovers(server) == {}
        assert server.rss_bytes() - before < 0.7e9


def test_calls_whose_bodies_interleave(server: Server) -> None:
    """Four bodies sent in turns of 10,000 bytes on one connection: each gets its own answer."""
    calls = [full_hd(seed) for seed in range(4)]
    with RawHttp2(server.address) as client:
        streams = [client.open() for _ in calls]
        bodies = [frame(message) for message, _ in calls]
        for offset in range(0, len(bodies[0]), 100_000):
            for stream, body in zip(streams, bodies, strict=True):
                client.send(stream, body[offset : offset + 100_000], end=False)
        for stream in streams:
            client.send(stream, b"")
        answers = [client.wait(stream) for stream in streams]
    for answer, (_, pixels) in zip(answers, calls, strict=True):
        assert pixels_of(answer.message) == pixels


def test_answers_are_those_of_onnx_runtime(server: Server, load_repository: Path) -> None:
    """Rows of different clients are never mixed: 32 calls at once, each with its own answer."""
    inputs = [CATALOGUE["mlp"].sample(1 + seed % 4, seed=seed) for seed in range(32)]
    with RawHttp2(server.address) as client:
        streams = [client.open() for _ in inputs]
        for stream, x in zip(streams, inputs, strict=True):
            message = infer("mlp", [tensor("x", "FP32", x.shape)], [x.tobytes()])
            client.send(stream, frame(message))
        replies = [client.wait(stream).message for stream in streams]
    for reply, x in zip(replies, inputs, strict=True):
        y = np.frombuffer(pixels_of(reply), np.float32).reshape(-1, 10)
        np.testing.assert_allclose(y, expected(load_repository, "mlp", x), rtol=1e-5, atol=1e-6)


IsTime = Callable[[Server, list[Any]], object]


@contextmanager
def stopping_while_calling(
    transport: str,
    repository: Path,
    messages: Sequence[bytes],
    is_time: IsTime,
) -> Iterator[list[Any]]:
    """The calls with `messages`, after a SIGTERM when `is_time` returned and exit code 0."""
    server = start("--model-repository", repository, "--transport", transport)
    try:
        server.wait_ready()
        with grpc.insecure_channel(server.address, options=UNLIMITED) as channel:
            method = channel.unary_unary(
                INFER, request_serializer=bytes, response_deserializer=bytes
            )
            sent: list[Any] = [method.future(message, timeout=30) for message in messages]
            is_time(server, sent)
            server.process.terminate()
            for call in sent:
                call.code()  # waits
            assert server.process.wait(30) == 0, server.output()
            yield sent
    finally:
        if server.process.poll() is None:
            server.kill()


@pytest.fixture(scope="module")
def heavy_repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What computes for long, and what is large."""
    return write_repository(tmp_path_factory.mktemp("heavy"), ["slow", "identity_6mb"])


def test_shut_down_answers_what_is_in(transport: str, heavy_repository: Path) -> None:
    """SIGTERM with twenty-four heavy requests queued or running: every one is answered."""

    def all_are_in(server: Server, sent: list[Any]) -> None:
        for _ in range(2):  # who ends meanwhile is counted twice, but not in the next reading
            Scrape.when(
                server.metrics_address,
                lambda now: now("nv_inference_request_success") + num_inside(now) >= len(sent),
            )

    with stopping_while_calling(transport, heavy_repository, [heavy()] * 24, all_are_in) as calls:
        assert [call.code().name for call in calls] == ["OK"] * 24


def test_shut_down_cuts_no_reply(transport: str, heavy_repository: Path) -> None:
    """SIGTERM amid sixteen calls of 6 MB: each is answered whole, or was never let in."""
    calls = [full_hd(seed) for seed in range(4)] * 4
    messages = [message for message, _ in calls]

    def first_is_done(_: Server, sent: list[Any]) -> None:
        sent[0].result()

    with stopping_while_calling(transport, heavy_repository, messages, first_is_done) as ended:
        for call, (_, pixels) in zip(ended, calls, strict=True):
            if call.code() is grpc.StatusCode.OK:
                assert pixels_of(call.result()) == pixels
            else:  # grpcio says CANCELLED of calls whose message had not all come
                assert call.code().name in {"UNAVAILABLE", "CANCELLED"}
