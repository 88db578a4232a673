"""ModelStreamInfer over a socket, on both transports: order, errors, and how streams end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from helpers.messages import GOOD, infer, pair, tensor
from helpers.raw_http2 import RawHttp2, frame
from helpers.rpc_client import RpcClient, infer_message, slow_message
from helpers.scrape import Scrape, is_at_rest
from helpers.server import Server
from helpers.slow_calls import LONG, SHORT, wait_until_inside
from helpers.stream_client import PATH, Stream, outputs
from load.models import CATALOGUE, expected
from load.soak import leftovers

Code = grpc.StatusCode
STRICT = (("triton_grpc_error", "true"),)


@pytest.fixture
def channel(server: Server) -> Iterator[RpcClient]:
    """A client of the server with the load models."""
    with RpcClient(server.address) as client:
        yield client


@pytest.fixture
def slow_channel(slow: Server) -> Iterator[RpcClient]:
    """A client of the server with the slow model, before and after at rest."""
    Scrape.when(slow.metrics_address, is_at_rest)
    with RpcClient(slow.address) as client:
        yield client
    Scrape.when(slow.metrics_address, is_at_rest, 30)


def mlp(seed: int) -> tuple[bytes, Any]:
    """A request to the MLP with its number as id, and its input."""
    x = CATALOGUE["mlp"].sample(1 + seed % 4, seed=seed)
    message = infer("mlp", [tensor("x", "FP32", x.shape)], [x.tobytes()], request_id=str(seed))
    return message, x


def heavy(request_id: str) -> bytes:
    """A request that computes for tens of milliseconds."""
    x = CATALOGUE["slow"].sample(4)
    return infer("slow", [tensor("x", "FP32", x.shape)], [x.tobytes()], request_id=request_id)


def ids(replies: list[Any]) -> list[str]:
    return [reply.infer_response.id for reply in replies]


def test_replies_come_in_the_order_of_requests(channel: RpcClient) -> None:
    """A quick model's reply waits for a slow one's before it; each says that it is the last."""
    stream = Stream(channel)
    for index in range(4):
        stream.send(heavy(f"slow {index}"), pair(request_id=f"quick {index}"))
    replies = stream.rest()
    assert ids(replies) == [f"{what} {n}" for n in range(4) for what in ("slow", "quick")]
    for reply in replies:
        assert reply.infer_response.parameters["triton_final_response"].bool_param
        assert list(reply.infer_response.parameters) == ["triton_final_response"]
    assert stream.call.code() is Code.OK


def test_thousands_of_messages_each_with_its_own_answer(
    channel: RpcClient, load_repository: Path
) -> None:
    """More than a stream may have in the server at once; the model's own figures."""
    requests = [mlp(seed) for seed in range(40)] * 75
    stream = Stream(channel)
    stream.send(*(message for message, _ in requests))
    stream.half_close()
    wanted = [expected(load_repository, "mlp", x) for _, x in requests[:40]]
    for index in range(len(requests)):
        reply = stream.read()
        assert reply.infer_response.id == str(index % 40)
        np.testing.assert_allclose(outputs(reply)["y"], wanted[index % 40], rtol=1e-5, atol=1e-6)
    with pytest.raises(StopIteration):
        stream.read()


def test_streams_at_once_are_not_mixed(channel: RpcClient) -> None:
    """Sixteen streams of one connection, each with its own ids and its own data."""
    streams = [Stream(channel) for _ in range(16)]
    for index in range(40):
        for number, stream in enumerate(streams):
            x = np.full((1, 4), 1000 * number + index, np.float32)
            raw = [x.tobytes(), bytes(8)]
            stream.send(pair(raw=raw, request_id=f"{number}/{index}"))
    for number, stream in enumerate(streams):
        for index, reply in enumerate(stream.rest()):
            assert reply.infer_response.id == f"{number}/{index}"
            assert outputs(reply)["p"].tolist() == [[1000 * number + index] * 4]


WRONG = {
    "model": (pair(model="nothing", request_id="e"), "unknown model: 'nothing' is not found"),
    "version": (pair(version="x", request_id="e"), "version string 'x'"),
    "shape": (infer("pair", [tensor("a", "FP32", [1, 3])], request_id="e"), "inputs"),
    "bytes": (pair(raw=[bytes(3), bytes(8)], request_id="e"), "input byte size mismatch"),
    "parameter": (pair(parameters={"triton_x": True}, request_id="e"), "triton_x"),
}


@pytest.mark.parametrize("what", WRONG)
def test_an_error_leaves_the_stream_open(channel: RpcClient, what: str) -> None:
    """It comes in its turn, with the id and without outputs; what follows is served."""
    message, text = WRONG[what]
    stream = Stream(channel)
    stream.send(heavy("1"), message, pair(request_id="3"))
    first, error, third = stream.rest()
    assert ids([first, error, third]) == ["1", "e", "3"]
    assert text in error.error_message
    assert (len(error.infer_response.outputs), error.infer_response.model_name) == (0, "")
    assert outputs(third)["p"].shape == (1, 4)
    assert stream.call.code() is Code.OK


def test_what_is_no_request_is_an_error_without_an_id(channel: RpcClient) -> None:
    """And costs the stream nothing else."""
    stream = Stream(channel)
    stream.send(b"\xff\xff", GOOD)
    error, reply = stream.rest()
    assert "not a ModelInferRequest" in error.error_message
    assert error.infer_response.id == ""
    assert outputs(reply)["p"].shape == (1, 4)


def test_where_the_client_asks_for_it_an_error_ends_the_stream(channel: RpcClient) -> None:
    """With its status, after the replies to what was asked before it."""
    stream = Stream(channel, metadata=STRICT)
    stream.send(heavy("1"), pair(model="nothing"), pair(request_id="3"))
    replies, (code, text) = stream.end()
    assert ids(replies) == ["1"]
    assert (code, "unknown model: 'nothing'" in text) == (Code.NOT_FOUND, True)


def test_a_model_s_own_failure_is_an_error_in_the_stream(client: RpcClient) -> None:
    """The model fails at some input, and the stream goes on."""
    stream = Stream(client)
    for i in (2, 9, 3):
        stream.send(infer_message("picks", {"i": np.array([[i]])}, request_id=str(i)))
    two, nine, three = stream.rest()
    assert [outputs(reply)["y"].tolist() for reply in (two, three)] == [[[20.0]], [[30.0]]]
    assert (nine.infer_response.id, "ONNX Runtime" in nine.error_message) == ("9", True)


def test_the_wish_for_an_empty_last_reply_changes_nothing(channel: RpcClient) -> None:
    """It is for models that answer several times: here each reply is a last one already."""
    stream = Stream(channel)
    stream.send(pair(parameters={"triton_enable_empty_final_response": True}))
    (reply,) = stream.rest()
    assert outputs(reply)["p"].shape == (1, 4)


def test_a_stream_without_requests(channel: RpcClient) -> None:
    """Half-closed at once: OK."""
    stream = Stream(channel)
    assert stream.rest() == []
    assert stream.call.code() is Code.OK


def test_large_messages(channel: RpcClient) -> None:
    """6.2 MB each way, several at once in one stream."""
    frames = [CATALOGUE["identity_6mb"].sample(seed=seed) for seed in range(3)]
    stream = Stream(channel)
    stream.send(
        *(infer("identity_6mb", [tensor("x", "UINT8", x.shape)], [x.tobytes()]) for x in frames)
    )
    for x, reply in zip(frames, stream.rest(), strict=True):
        assert (outputs(reply)["y"] == x).all()


def test_a_message_over_the_limit_ends_the_stream(channel: RpcClient) -> None:
    """It is refused before it has come whole, with the status of unary calls."""
    stream = Stream(channel)
    stream.send(bytes(9 << 20))
    assert stream.end()[1][0] is Code.RESOURCE_EXHAUSTED


def fill(stream: Stream, server: Server) -> None:
    """Four requests in the core: two on the slot, two behind them; where they have no deadlines."""
    for index in range(4):
        stream.send(slow_message(LONG, [float(index)], request_id=str(index)))
        wait_until_inside(server, index + 1)


def dropped(server: Server) -> float:
    return Scrape(server.metrics_address)("headrace_dropped", reason="cancelled")


def test_a_stream_that_is_cancelled_takes_its_requests_with_it(
    slow_channel: RpcClient, slow: Server
) -> None:
    """All of them; those in flight keep their blocks until they are done, and another is served."""
    before = dropped(slow)
    stream = Stream(slow_channel, timeout_s=None)
    fill(stream, slow)
    stream.call.cancel()
    Scrape.when(slow.metrics_address, lambda now: now("headrace_queue_length") == 0)
    other = Stream(slow_channel)
    other.send(slow_message(SHORT, [7.0]))
    (reply,) = other.rest()
    assert outputs(reply)["y"].tolist() == [7.0]
    Scrape.when(slow.metrics_address, is_at_rest)
    assert dropped(slow) - before == 4


def test_a_stream_past_its_deadline_takes_its_requests_with_it(
    slow_channel: RpcClient, slow: Server
) -> None:
    """The deadline is the whole stream's; what cannot meet it any more is told so in time."""
    stream = Stream(slow_channel, timeout_s=0.2)
    stream.send(*(slow_message(LONG, request_id=str(n)) for n in range(4)))
    replies, (code, _) = stream.end()
    assert code is Code.DEADLINE_EXCEEDED
    assert sum(not reply.error_message for reply in replies) < 4
    Scrape.when(slow.metrics_address, is_at_rest)


def test_a_full_queue_is_an_error_of_those_that_are_over_it(
    slow_channel: RpcClient, slow: Server
) -> None:
    """As for unary calls; the others of the stream are answered."""
    stream = Stream(slow_channel, timeout_s=None)
    fill(stream, slow)
    stream.send(slow_message(SHORT, request_id="over"))
    *answered, refused = stream.rest()
    assert [outputs(reply)["y"].tolist() for reply in answered] == [[float(n)] for n in range(4)]
    assert refused.infer_response.id == "over"
    assert "Exceeds maximum queue size" in refused.error_message


def test_a_connection_that_breaks_amid_a_stream(server: Server) -> None:
    """Nothing is left of it, and others are served."""
    with RawHttp2(server.address) as client:
        stream = client.open(PATH)
        for index in range(10):
            client.send(stream, frame(heavy(str(index))), end=False)
        client.send(stream, frame(GOOD)[:20], end=False)
    with RawHttp2(server.address) as other:
        assert other.call(GOOD).grpc_status == 0
    assert leftovers(server) == {}
    assert server.metrics()["headrace_queue_length"] == 0
