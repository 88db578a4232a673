"""Both clients against a small real server: every call, every kind of tensor, every kind of end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import ml_dtypes
import numpy as np
import pytest

from headrace_client import (
    AsyncClient,
    CallFailed,
    ClientClosed,
    DeadlineExceeded,
    HealthStatus,
    InferenceFailed,
    InvalidInput,
    InvalidReply,
    ServerUnavailable,
    Tensor,
    bf16_to_float32,
)
from helpers.echo_server import EchoServer, Failure, echo_server
from helpers.either_client import KINDS, open_client

ARRAY = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture
def echo() -> Iterator[EchoServer]:
    with echo_server() as server:
        yield server


@pytest.fixture(params=KINDS)
def client(request: pytest.FixtureRequest, echo: EchoServer) -> Iterator[Any]:
    with open_client(request.param, echo.url) as opened:
        yield opened


@pytest.mark.parametrize(
    "dtype",
    ["?", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8"],
)
def test_every_numeric_datatype(client: Any, echo: EchoServer, dtype: str) -> None:
    """An array comes back as it was sent: type, shape and values."""
    array = np.arange(6).reshape(3, 2).astype(dtype)
    outputs = client.infer("echo", {"x": array})
    assert outputs["x"].dtype == array.dtype
    assert np.array_equal(outputs["x"], array)
    assert echo.requests[0].raw_input_contents[0] == array.tobytes()


def test_strings_and_bf16(client: Any) -> None:
    """BYTES come back as bytes, BF16 as its bits."""
    halves = np.array([1.5, -2.0], ml_dtypes.bfloat16)
    outputs = client.infer("echo", {"s": ["a", "ö\0"], "b": halves, "c": Tensor([1.5], "BF16")})
    assert outputs["s"].tolist() == [b"a", "ö\0".encode()]
    assert np.array_equal(outputs["b"].view(ml_dtypes.bfloat16), halves)
    assert bf16_to_float32(outputs["c"]).tolist() == [1.5]


def test_a_large_tensor(client: Any) -> None:
    """Nothing limits a message before the protocol does."""
    array = np.arange(3_000_000, dtype=np.float32)
    assert np.array_equal(client.infer("echo", {"x": array})["x"], array)


def test_the_whole_reply(client: Any) -> None:
    """`infer_full` tells the version, the id and the parameters."""
    result = client.infer_full(
        "echo", {"x": ARRAY}, version="2", request_id="r1", parameters={"priority": 1, "a": "b"}
    )
    assert (result.model_name, result.model_version, result.request_id) == ("echo", "2", "r1")
    assert result.parameters == {"priority": 1, "a": "b"}
    assert result.datatypes == {"x": "FP32"}


def test_questions_about_the_server(client: Any, echo: EchoServer) -> None:
    """Live, ready and health say what the server says."""
    assert client.is_live()
    assert client.is_ready()
    assert client.health() is HealthStatus.SERVING
    echo.ready = False
    assert not client.is_ready()
    assert not client.is_model_ready("echo")
    assert client.health("echo") is HealthStatus.NOT_SERVING


def test_an_unknown_model_is_not_ready(client: Any) -> None:
    """For questions, an unknown name is an answer and no error."""
    assert client.is_model_ready("echo", "3")
    assert not client.is_model_ready("unknown")
    assert client.health("unknown") is HealthStatus.SERVICE_UNKNOWN


def test_metadata_and_the_like(client: Any) -> None:
    """Each of the reads returns what the server holds."""
    assert client.server_metadata().name == "echo"
    metadata = client.model_metadata("echo")
    assert [(each.name, each.datatype) for each in metadata.inputs][:1] == [("x", "FP32")]
    assert client.model_config("echo").max_batch_size == 8
    assert client.statistics()[0].inference_count == 7
    assert [each.name for each in client.repository_index()] == ["echo", "torn"]
    assert [each.name for each in client.repository_index(ready_only=True)] == ["echo"]


def test_metadata_of_an_unknown_model(client: Any) -> None:
    """A refused read carries the server's code and text."""
    with pytest.raises(CallFailed, match="NOT_FOUND: unknown model: 'unknown'") as caught:
        client.model_config("unknown")
    assert caught.value.code is grpc.StatusCode.NOT_FOUND
    assert not isinstance(caught.value, InferenceFailed)


def test_a_refused_inference(client: Any, echo: EchoServer) -> None:
    """The server's words reach the caller."""
    echo.failures["ModelInfer"] = Failure(grpc.StatusCode.INVALID_ARGUMENT, "input 'x': 2 != 3")
    with pytest.raises(InferenceFailed) as caught:
        client.infer("echo", {"x": ARRAY})
    assert caught.value.code is grpc.StatusCode.INVALID_ARGUMENT
    assert caught.value.text == "input 'x': 2 != 3"


@pytest.mark.parametrize(
    ("pushback", "seconds"), [("250", 0.25), ("-1", float("inf")), ("soon", float("inf"))]
)
def test_overload(client: Any, echo: EchoServer, pushback: str, seconds: float) -> None:
    """A full server is told from a broken one, and its wish to be left alone is handed on."""
    trailing = (("grpc-retry-pushback-ms", pushback),)
    echo.failures["ModelInfer"] = Failure(grpc.StatusCode.UNAVAILABLE, "queue full", trailing)
    with pytest.raises(ServerUnavailable, match="queue full") as caught:
        client.infer("echo", {"x": ARRAY})
    assert caught.value.pushback_s == seconds


def test_nonsense_from_the_server(client: Any, echo: EchoServer) -> None:
    """A reply that is none raises, and the client works on."""
    echo.reply = lambda request: b"\xff\xff"
    with pytest.raises(InvalidReply):
        client.infer("echo", {"x": ARRAY})
    echo.reply = None
    assert np.array_equal(client.infer("echo", {"x": ARRAY})["x"], ARRAY)


def test_bad_arguments_send_nothing(client: Any, echo: EchoServer) -> None:
    """A mistake of the caller never reaches the server."""
    with pytest.raises(InvalidInput):
        client.infer("echo", {"x": object()})
    with pytest.raises(InvalidInput):
        client.infer("echo", {"x": ARRAY}, timeout_s=-1)
    assert not echo.requests


def test_deadline(client: Any, echo: EchoServer) -> None:
    """A call ends when its time is over, and the server learns of it."""
    echo.hold = True
    with pytest.raises(DeadlineExceeded) as caught:
        client.infer("echo", {"x": ARRAY}, timeout_s=0.2)
    assert isinstance(caught.value, TimeoutError)
    assert echo.left.wait(10)


def test_close_ends_a_waiting_call(client: Any, echo: EchoServer) -> None:
    """Closing the client releases whoever waits in it; nobody hangs."""
    echo.hold = True
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(client.infer, "echo", {"x": ARRAY})
        assert echo.held.wait(10)
        client.close()
        with pytest.raises(ClientClosed):
            waiting.result(10)


def test_closed_is_closed(client: Any, echo: EchoServer) -> None:
    """Closing twice is fine; calling afterwards is one known error, used or not before."""
    client.is_live()
    client.close()
    client.close()
    with pytest.raises(ClientClosed):
        client.infer("echo", {"x": ARRAY})
    with pytest.raises(ClientClosed):
        client.server_metadata()


@pytest.mark.parametrize("kind", KINDS)
def test_metadata_travels_with_every_call(kind: str, echo: EchoServer) -> None:
    """What the client was given to send is there in inferences and reads alike."""
    with open_client(kind, echo.url, metadata=[("authorization", "Bearer x")]) as client:
        client.infer("echo", {"x": ARRAY})
        client.server_metadata()
    assert [seen["authorization"] for seen in echo.metadata] == ["Bearer x"] * 2


def test_threads_share_a_client(client: Any) -> None:
    """Many threads at once, from the first call on, each get their own answer."""
    start = threading.Barrier(8)

    def ask(number: int) -> bool:
        start.wait(10)
        arrays = [np.full(100, 1000 * number + step) for step in range(20)]
        return all(np.array_equal(client.infer("echo", {"x": a})["x"], a) for a in arrays)

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(ask, range(8)))


def test_a_cancelled_call_is_cancelled_at_the_server(echo: EchoServer) -> None:
    """Whoever stops awaiting an inference stays cancelled, and the server learns of it."""
    echo.hold = True

    async def leave() -> None:
        async with AsyncClient(echo.url) as client:
            asking = asyncio.create_task(client.infer("echo", {"x": ARRAY}))
            assert await asyncio.to_thread(echo.held.wait, 10)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            assert await asyncio.to_thread(echo.left.wait, 10)

    asyncio.run(leave())


def test_many_calls_await_at_once(echo: EchoServer) -> None:
    """Concurrent calls of one AsyncClient each get their own answer."""

    async def ask_all() -> list[int]:
        async with AsyncClient(echo.url) as client:
            arrays = [np.full(10, number) for number in range(50)]
            results = await asyncio.gather(*(client.infer("echo", {"x": a}) for a in arrays))
        return [int(outputs["x"][9]) for outputs in results]

    assert asyncio.run(ask_all()) == list(range(50))
