"""Streams that are not read, and streams at the end of a server: what they hold has a bound."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2 as pb

from helpers import onnx_models
from helpers.raw_http2 import RawHttp2, frame
from helpers.rpc_client import RpcClient, infer_message, slow_message
from helpers.scrape import Scrape, is_at_rest, num_inside
from helpers.server import NO_DEBUG, Server, serving, start
from helpers.slow_calls import LONG
from helpers.stream_client import PATH, Stream, outputs

Code = grpc.StatusCode
COLUMNS = 262_144
REPLY_BYTES = 4 * COLUMNS
NUM_REQUESTS = 40
MAX_REQUESTS = 4
NUM_BUFFERED = {"grpcio": 0, "native": 8}  # replies in the windows between the fronts
STOPPING = "GRPC server is shutting down and has stopped accepting new requests."


@pytest.fixture(scope="module")
def wide_repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The models `wide`, whose replies are large, and `slow`."""
    folder = tmp_path_factory.mktemp("wide-model")
    onnx_models.save(onnx_models.wide(COLUMNS), folder / "wide/1/model.onnx")
    (folder / "wide/config.pbtxt").write_text('backend: "onnxruntime" max_batch_size: 0')
    onnx_models.save(onnx_models.slow(), folder / "slow/1/model.onnx")
    (folder / "slow/config.pbtxt").write_text(onnx_models.SLOW_CONFIG)
    return folder


@pytest.fixture(params=["requests", "bytes"])
def bounded(
    transport: str, wide_repository: Path, request: pytest.FixtureRequest
) -> Iterator[Server]:
    """A server whose streams are full with four replies, by number or by size."""
    by_number = request.param == "requests"
    bound = (
        ("--grpc-max-stream-requests", str(MAX_REQUESTS))
        if by_number
        else ("--grpc-max-stream-bytes", str(MAX_REQUESTS * REPLY_BYTES))
    )
    arguments = ("--model-repository", wide_repository, "--transport", transport, *bound)
    with serving(*arguments, env=NO_DEBUG) as server:
        yield server
    assert "Traceback" not in server.output(), "callers that leave are no errors of the server"


def wide(index: int) -> bytes:
    return infer_message("wide", {"x": np.array([index], np.float32)}, request_id=str(index))


def messages(body: bytes) -> Iterator[Any]:
    """The replies in the body of a stream."""
    while body:
        size = int.from_bytes(body[1:5], "big")
        yield pb.ModelStreamInferResponse.FromString(body[5 : 5 + size])
        body = body[5 + size :]


def test_a_reader_that_stalls_stalls_itself_alone(bounded: Server, transport: str) -> None:
    """Its requests wait unread beyond the bound, hold no block, and others are served.

    When it reads on, it gets all replies, in order.
    """
    address = bounded.metrics_address
    with RawHttp2(bounded.address, window_bytes=100) as client:
        stream = client.open(PATH)
        for index in range(NUM_REQUESTS):
            client.send(stream, frame(wide(index)), end=False)
        Scrape.when(address, lambda now: now("headrace_stream_bytes") >= MAX_REQUESTS * REPLY_BYTES)
        with RpcClient(bounded.address) as other:
            for _ in range(30):
                other.infer("wide", {"x": np.zeros(1, np.float32)})
        reading = Scrape.when(address, is_at_rest)
        num_answered = reading("nv_inference_request_success") - 30
        assert num_answered <= MAX_REQUESTS + NUM_BUFFERED[transport]
        client.h2.update_settings({4: 1 << 24})  # INITIAL_WINDOW_SIZE
        client.h2.increment_flow_control_window(1 << 24)
        client.send(stream, b"")
        answer = client.wait(stream)
    assert answer.grpc_status == 0
    for index, reply in enumerate(messages(bytes(answer.data))):
        assert reply.infer_response.id == str(index)
        assert (outputs(reply)["y"] == index).all()
    assert index == NUM_REQUESTS - 1


def test_readers_that_stall_and_leave_leave_nothing(bounded: Server) -> None:
    """Neither requests nor memory; the server's log says nothing of them."""
    stall_and_leave(bounded, 10)  # what is allocated once is kept for the next
    before = bounded.rss_bytes()
    stall_and_leave(bounded, 20)
    Scrape.when(
        bounded.metrics_address, lambda now: is_at_rest(now) and now("headrace_streams") == 0
    )
    assert bounded.rss_bytes() - before < 20 * MAX_REQUESTS * REPLY_BYTES * 3 // 4


def stall_and_leave(server: Server, times: int) -> None:
    """Fill a stream that is not read, and cut its connection, so many times."""
    for _ in range(times):
        with RawHttp2(server.address, window_bytes=100) as client:
            stream = client.open(PATH)
            for index in range(NUM_REQUESTS):
                client.send(stream, frame(wide(index)), end=False)
            Scrape.when(server.metrics_address, lambda now: now("headrace_streams") == 1)


def test_all_streams_together_have_a_bound(transport: str, wide_repository: Path) -> None:
    """Beyond --max-bytes-in-flight the requests of a further stream are refused, one by one."""
    limits = ("--max-bytes-in-flight", str(64 << 20), "--grpc-max-request-bytes", str(1 << 20))
    arguments = ("--model-repository", wide_repository, "--transport", transport, *limits)
    pool = ("--pinned-memory-pool-byte-size", str(32 << 20))
    with (
        serving(*arguments, *pool, env=NO_DEBUG) as server,
        ExitStack() as stalled,
        RpcClient(server.address) as client,
    ):
        for _ in range(2):
            idle = stalled.enter_context(RawHttp2(server.address, window_bytes=100))
            stream = idle.open(PATH)
            for index in range(NUM_REQUESTS):
                idle.send(stream, frame(wide(index)), end=False)
        refused: set[str] = set()
        while not refused:  # room for one may be left; for as many as this at once never
            last = Stream(client)
            last.send(*(wide(index) for index in range(NUM_REQUESTS)))
            refused = {reply.error_message for reply in last.rest()} - {""}
        assert all("do not read" in text for text in refused)
        assert client.infer("wide", {"x": np.ones(1, np.float32)})["y"][0] == 1
        stalled.close()
        Scrape.when(server.metrics_address, lambda now: now("headrace_streams") == 0)
        last = Stream(client)
        last.send(wide(5))
        (reply,) = last.rest()
        assert outputs(reply)["y"][0] == 5


def test_shut_down_answers_what_is_in_and_tells_every_stream(
    transport: str, slow_repository: Path
) -> None:
    """Pending replies come, then UNAVAILABLE, also on a stream that asks nothing; exit code 0."""
    server = start(*("--model-repository", slow_repository, "--transport", transport), env=NO_DEBUG)
    try:
        server.wait_ready()
        with RpcClient(server.address) as client:
            idle, busy = Stream(client), Stream(client)
            idle.send(slow_message(1, [9.0]))
            assert outputs(idle.read())["y"].tolist() == [9.0]
            busy.send(*(slow_message(LONG, [float(n)], request_id=str(n)) for n in range(4)))
            Scrape.when(server.metrics_address, lambda now: num_inside(now) == 4)
            server.process.terminate()
            replies, how = busy.end()
            assert [outputs(reply)["y"].tolist() for reply in replies] == [[n] for n in range(4)]
            assert how == (Code.UNAVAILABLE, STOPPING)
            assert idle.end() == ([], (Code.UNAVAILABLE, STOPPING))
        assert server.process.wait(20) == 0, server.output()
    finally:
        if server.process.poll() is None:
            server.kill()
    assert "Traceback" not in server.output()


def test_a_stalled_reader_does_not_hold_up_the_end(transport: str, wide_repository: Path) -> None:
    """The exit time-out is the bound."""
    server = start(
        *("--model-repository", wide_repository, "--transport", transport),
        *("--exit-timeout-secs", "1"),
        env=NO_DEBUG,
    )
    try:
        server.wait_ready()
        with RawHttp2(server.address, window_bytes=100) as client:
            stream = client.open(PATH)
            client.send(stream, frame(wide(1)), end=False)
            Scrape.when(
                server.metrics_address, lambda now: now("nv_inference_request_success") == 1
            )
            server.process.terminate()
            assert server.process.wait(20) == 0, server.output()
    finally:
        if server.process.poll() is None:
            server.kill()
