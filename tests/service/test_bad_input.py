"""Requests that are wrong get their status and text, cost nothing, and hurt nobody else."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import cycle, islice
from typing import Any

import grpc
import pytest
from tritonclient.grpc import service_pb2 as pb

from helpers.bad_request import SERVICE, Bad
from helpers.bad_requests import BAD_REQUESTS
from helpers.messages import GOOD, ODD
from helpers.server import Server

INFER = f"{SERVICE}ModelInfer"
MAX_TEXT_BYTES = 4096  # grpcio's clients refuse a reply with more metadata than 8 KiB


@pytest.fixture
def channel(server: Server) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(server.address) as opened:
        yield opened


def status(channel: grpc.Channel, path: str, message: bytes) -> tuple[int, str]:
    """(code, text) of a call; 0 when it was answered."""
    call = start(channel, path, message)
    return call.code().value[0], call.details() or ""


def start(channel: grpc.Channel, path: str, message: bytes) -> Any:
    """A call on its way; bytes go out and come in as they are."""
    method = channel.unary_unary(path, request_serializer=bytes, response_deserializer=bytes)
    return method.future(message, timeout=30)


def assert_serves(channel: grpc.Channel) -> None:
    """A good request is answered rightly."""
    reply = pb.ModelInferResponse.FromString(start(channel, INFER, GOOD).result())
    assert list(reply.raw_output_contents) == [bytes(16), bytes(8)]


def test_there_are_enough_cases() -> None:
    """At least 60 kinds of wrong, each with a name of its own."""
    assert len({bad.name for bad in BAD_REQUESTS}) == len(BAD_REQUESTS) > 60


@pytest.mark.parametrize("bad", BAD_REQUESTS, ids=lambda bad: bad.name)
def test_wrong_request(channel: grpc.Channel, bad: Bad) -> None:
    """The status and a piece of the text are as the table says, and the next request is served."""
    code, text = status(channel, bad.path, bad.message)
    assert (code, bad.text in text) == (bad.code, True), text
    assert len(text.encode()) <= MAX_TEXT_BYTES
    assert_serves(channel)


@pytest.mark.parametrize("message", ODD.values(), ids=ODD)
def test_odd_but_right(channel: grpc.Channel, message: bytes) -> None:
    """What looks odd and is allowed is answered."""
    reply = pb.ModelInferResponse.FromString(start(channel, INFER, message).result())
    by_name = dict(zip((one.name for one in reply.outputs), reply.raw_output_contents, strict=True))
    assert by_name == {"p": bytes(16), "q": bytes(8)}


def test_texts_hold_no_secrets(channel: grpc.Channel) -> None:
    """Neither an OS key nor a traceback comes back."""
    for bad in BAD_REQUESTS:
        _, text = status(channel, bad.path, bad.message)
        for secret in ("/secret", "Traceback", ".py", "0x7f"):
            assert secret not in text, f"{bad.name}: {text}"


@pytest.mark.timeout(180)
def test_memory_is_stable_over_ten_thousand(server: Server) -> None:
    """10,000 wrong requests, 32 at a time, leave the memory where it was after the first 1,000."""
    requests = cycle(BAD_REQUESTS)
    with grpc.insecure_channel(server.address) as channel:
        send_all(channel, islice(requests, 1_000))
        before = server.rss_bytes()
        send_all(channel, islice(requests, 10_000))
        grown = server.rss_bytes() - before
        assert_serves(channel)
    assert grown < 20e6, f"grown by {grown / 1e6:.1f} MB"


def send_all(channel: grpc.Channel, requests: Iterator[Bad], at_once: int = 32) -> None:
    """Sends every request with some others in flight; each must end with its own status."""
    in_flight: deque[tuple[Bad, Any]] = deque()
    for bad in requests:
        in_flight.append((bad, start(channel, bad.path, bad.message)))
        if len(in_flight) == at_once:
            expect_status(*in_flight.popleft())
    while in_flight:
        expect_status(*in_flight.popleft())


def expect_status(bad: Bad, call: Any) -> None:
    """The call ended with the status of its case."""
    assert call.code().value[0] == bad.code, f"{bad.name}: {call.details()}"
