"""Messages in a wrong gRPC frame: lies about length, bombs, encodings, cut or doubled bodies."""

from __future__ import annotations

import gzip
import zlib

import pytest

from helpers.bad_request import INTERNAL, RESOURCE_EXHAUSTED, UNIMPLEMENTED
from helpers.messages import GOOD
from helpers.raw_http2 import INFER, Answer, RawHttp2, frame
from helpers.server import Server

LIMIT_BYTES = 8 << 20  # of the fixture's server
CANCELLED, UNKNOWN, INVALID_ARGUMENT, DEADLINE_EXCEEDED, NOT_FOUND = 1, 2, 3, 4, 5
TIMEOUT = "5S"  # gRPC's notation: more than any of these needs
SHORT = "300m"


def send(
    server: Server, body: bytes, *, encoding: str | None = None, timeout: str = TIMEOUT
) -> Answer:
    """One call with `body` as it is, to the end of its answer."""
    with RawHttp2(server.address) as client:
        extra = [("grpc-timeout", timeout)]
        extra += [] if encoding is None else [("grpc-encoding", encoding)]
        stream = client.open(extra=extra)
        client.send(stream, body)
        return client.wait(stream)


def assert_serves(server: Server) -> None:
    """A good request is answered, on a connection of its own."""
    with RawHttp2(server.address) as client:
        assert client.call(GOOD).grpc_status == 0


def padded(size: int) -> bytes:
    """A good request of `size` bytes: the rest is an id (which protobuf lets one repeat)."""
    fill = size - len(GOOD) - 5
    head = bytes([0x1A, *((fill >> shift & 0x7F) | 0x80 for shift in (0, 7, 14)), fill >> 21])
    return GOOD + head + b"i" * fill


def test_a_message_at_the_limit_is_served(server: Server) -> None:
    """The limit is inclusive."""
    assert send(server, frame(padded(LIMIT_BYTES))).grpc_status == 0


def test_a_message_over_the_limit(server: Server) -> None:
    """One byte more is refused, with both numbers in the text."""
    answer = send(server, frame(padded(LIMIT_BYTES + 1)))
    assert answer.grpc_status == RESOURCE_EXHAUSTED
    assert str(LIMIT_BYTES) in answer.grpc_message
    assert str(LIMIT_BYTES + 1) in answer.grpc_message
    assert_serves(server)


def test_gzip_within_the_limit_is_served(server: Server) -> None:
    """What tritonclient sends when asked to compress."""
    body = frame(gzip.compress(padded(1 << 20)), compressed=True)
    assert send(server, body, encoding="gzip").grpc_status == 0


def test_a_gzip_bomb(server: Server) -> None:
    """1,000 to 1: 64 KB that unpack to 64 MB are refused, and the memory comes back."""
    bomb = gzip.compress(padded(64 << 20), 9)
    assert len(bomb) < 80_000
    before = server.rss_bytes()
    for _ in range(5):
        answer = send(server, frame(bomb, compressed=True), encoding="gzip")
        assert answer.grpc_status == RESOURCE_EXHAUSTED, answer
    assert_serves(server)
    assert server.rss_bytes() - before < 160e6


@pytest.mark.parametrize("claim", [1 << 31, (1 << 32) - 1])
def test_a_length_of_gigabytes(server: Server, claim: int) -> None:
    """A claim without the bytes takes no memory, keeps nobody waiting, and ends in an error."""
    before = server.rss_bytes()
    with RawHttp2(server.address) as client:
        streams = [client.open() for _ in range(8)]
        for stream in streams:
            client.send(stream, frame(GOOD, claim=claim), end=False)
        assert_serves(server)
        assert server.rss_bytes() - before < 20e6
        for stream in streams:
            client.send(stream, b"")
            assert client.wait(stream).grpc_status in {RESOURCE_EXHAUSTED, INTERNAL}
    assert_serves(server)


@pytest.mark.parametrize("encoding", ["br", "zstd", "snappy", "x" * 100])
def test_an_unknown_encoding(server: Server, encoding: str) -> None:
    """Refused by the transport: UNIMPLEMENTED as gRPC asks, INTERNAL from grpcio."""
    answer = send(server, frame(zlib.compress(GOOD), compressed=True), encoding=encoding)
    assert answer.grpc_status in {UNIMPLEMENTED, INTERNAL}
    assert "encoding" in answer.grpc_message or "compressed" in answer.grpc_message
    assert_serves(server)


BROKEN = {
    "no message": b"",
    "a prefix cut": b"\0\0\0",
    "a message cut": frame(GOOD)[:-1],
    "a reserved flag": b"\x07" + frame(GOOD)[1:],
    "compressed without an encoding": frame(zlib.compress(GOOD), compressed=True),
}


@pytest.mark.parametrize("body", BROKEN.values(), ids=BROKEN)
def test_a_broken_frame(server: Server, body: bytes) -> None:
    """Ends in an error, and nothing of it reaches the next request.

    grpcio answers nothing to a body that holds no whole message: there its deadline ends it. A
    message with a reserved flag it may hand on as an empty one, which names no model.
    """
    answer = send(server, body, timeout=SHORT)
    assert answer.grpc_status in {INTERNAL, DEADLINE_EXCEEDED, NOT_FOUND}
    assert_serves(server)


def test_gzip_that_is_not(server: Server) -> None:
    """Bytes that do not unpack end in an error."""
    answer = send(server, frame(b"not gzip at all", compressed=True), encoding="gzip")
    assert answer.grpc_status in {INTERNAL, UNKNOWN, INVALID_ARGUMENT, CANCELLED}
    assert_serves(server)


@pytest.mark.parametrize("more", [b"\0", frame(GOOD)], ids=["a byte", "a second message"])
def test_more_than_one_message(server: Server, more: bytes) -> None:
    """What follows the message is refused or ignored, never answered."""
    answer = send(server, frame(GOOD) + more)
    assert answer.grpc_status in {0, INTERNAL}
    assert answer.data.count(b"pair") <= 1
    assert_serves(server)


@pytest.mark.parametrize("path", ["*", "/", "//", INFER + "/", INFER.lower(), "/\u00e4"])
def test_a_path_that_is_none(server: Server, path: str) -> None:
    """Unknown paths are UNIMPLEMENTED or refused by HTTP/2 itself, never a hang."""
    with RawHttp2(server.address) as client:
        stream = client.open(path)
        client.send(stream, frame(GOOD))
        answer = client.wait(stream)
    assert answer.grpc_status in {UNIMPLEMENTED, None}
    assert answer.grpc_status is not None or answer.reset is not None or client.goaway is not None
    assert_serves(server)
