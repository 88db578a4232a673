"""`headrace-pin-slot: true`: a stream with a slot of its own, over a socket, on both transports."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import grpc
import numpy as np
import pytest

from helpers import onnx_models
from helpers.rpc_client import RpcClient, infer_message, slow_message
from helpers.scrape import Scrape, is_at_rest, num_inside
from helpers.server import Server, ServerPool
from helpers.stream_client import Stream, outputs

Code = grpc.StatusCode
PIN = (("headrace-pin-slot", "true"),)
LONG = 2500  # rounds of the slow model: some tenths of a second
SHORT = 1


@pytest.fixture(scope="session")
def three_slots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The slow model in three slots, and one that runs inline."""
    folder = tmp_path_factory.mktemp("three-slots")
    onnx_models.save(onnx_models.slow(), folder / "slow/1/model.onnx")
    config = onnx_models.SLOW_CONFIG.replace("count: 1", "count: 3")
    (folder / "slow/config.pbtxt").write_text(config)
    onnx_models.save(onnx_models.adds(1), folder / "adds/1/model.onnx")
    return folder


@pytest.fixture
def pinning(transport: str, servers: ServerPool, three_slots: Path) -> Server:
    """A server with these models."""
    return servers.get("--model-repository", three_slots, "--transport", transport)


@pytest.fixture
def client(pinning: Server) -> Iterator[RpcClient]:
    """Its client; before and after, nothing is in flight and nothing is pinned."""
    Scrape.when(pinning.metrics_address, is_free)
    with RpcClient(pinning.address) as client:
        yield client
    Scrape.when(pinning.metrics_address, is_free, 30)


def is_free(reading: Scrape) -> bool:
    return is_at_rest(reading) and reading("headrace_slots_pinned") == 0


def test_a_pinned_stream_does_not_wait_for_others(client: RpcClient, pinning: Server) -> None:
    """Ten long requests of others wait for the two slots that are left; its own run at once."""
    pinned = Stream(client, metadata=PIN)
    pinned.send(slow_message(SHORT, [0.0]))
    assert outputs(pinned.read())["y"].tolist() == [0.0]
    others = [client.start(slow_message(LONG, [float(n)])) for n in range(10)]
    Scrape.when(pinning.metrics_address, lambda now: num_inside(now) == 10)
    for index in range(5):
        pinned.send(slow_message(SHORT, [float(index)]))
        assert outputs(pinned.read())["y"].tolist() == [float(index)]
    assert not all(call.done() for call in others), "they have not all run meanwhile"
    assert Scrape(pinning.metrics_address)("headrace_slots_pinned", model="slow") == 1
    assert pinned.rest() == []
    for call in others:
        assert call.code() is Code.OK


def test_streams_beyond_the_slots_are_told(client: RpcClient, pinning: Server) -> None:
    """Two of three can be pinned; the third stream ends with the reason, others are served."""
    streams = [Stream(client, metadata=PIN) for _ in range(2)]
    for stream in streams:
        stream.send(slow_message(SHORT))
        assert not stream.read().error_message
    refused = Stream(client, metadata=PIN)
    refused.send(slow_message(SHORT))
    replies, (code, text) = refused.end()
    assert (replies, code) == ([], Code.RESOURCE_EXHAUSTED)
    assert "no slot of slow is left to pin: it has 3, 2 are pinned" in text
    assert client.start(slow_message(SHORT)).code() is Code.OK
    streams[0].rest()
    Scrape.when(pinning.metrics_address, lambda now: now("headrace_slots_pinned") == 1)
    later = Stream(client, metadata=PIN)
    later.send(slow_message(SHORT))
    assert not later.read().error_message
    later.rest()
    streams[1].rest()


def test_a_model_that_runs_inline_has_no_slot_to_spare(client: RpcClient) -> None:
    """It has one, on the thread that serves all."""
    stream = Stream(client, metadata=PIN)
    stream.send(infer_message("adds", {"x": np.zeros((1, 4), np.float32)}))
    _, (code, text) = stream.end()
    assert (code, "it has 1, 0 are pinned" in text) == (Code.RESOURCE_EXHAUSTED, True)


def test_a_stream_that_is_cancelled_gives_its_slot_back(client: RpcClient, pinning: Server) -> None:
    """What is in flight on it is finished first; then it is everybody's."""
    stream = Stream(client, metadata=PIN)
    for _ in range(4):
        stream.send(slow_message(LONG))
    Scrape.when(pinning.metrics_address, lambda now: num_inside(now) == 4)
    stream.call.cancel()
    Scrape.when(pinning.metrics_address, lambda now: now("headrace_slots_pinned") == 0)


@pytest.mark.parametrize("value", ["yes", "TRUE", ""])
def test_what_is_no_answer_ends_the_stream(client: RpcClient, value: str) -> None:
    """At once, whatever is sent."""
    stream = Stream(client, metadata=(("headrace-pin-slot", value),))
    stream.send(slow_message(SHORT))
    replies, (code, text) = stream.end()
    assert (replies, code) == ([], Code.INVALID_ARGUMENT)
    assert f"'headrace-pin-slot' is '{value}', expected true or false" in text
