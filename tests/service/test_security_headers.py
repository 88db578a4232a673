"""Headers that are too many, too large, packed to burst, doubled or in a wrong case."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from helpers.messages import GOOD
from helpers.raw_http2 import INFER, Answer, RawHttp2, frame
from helpers.server import Server, ServerPool

KIB = 1 << 10
GROWTH_BYTES = 60e6  # what a bomb may leave behind: an allocator's leftovers, not the headers
NUM_BOMBS = 5

Headers = list[tuple[str, str]]

BOMBS: dict[str, Headers] = {
    "a long value": [("x", "v" * 60 * KIB)],
    "a long name": [("x" * 60 * KIB, "v")],
    "ten thousand": [(f"x-{index}", "v") for index in range(10_000)],
    "the same ten thousand times": [("x", "v")] * 10_000,
    # One kibibyte is sent once, and then named a thousand times by one byte each.
    "packed a thousand to one": [("x", "v" * 4000)] * 1000,
    "a megabyte": [(f"x-{index}", "v" * 3000) for index in range(350)],
}


@pytest.fixture
def exposed(transport: str, servers: ServerPool, quick_repository: Path) -> Server:
    """A server as it is by default."""
    return servers.get("--model-repository", quick_repository, "--transport", transport)


def ended(client: RawHttp2, headers: Headers) -> Answer | None:
    """How a call with these headers ended; None when the connection did."""
    # Without Huffman's code, which takes Python a second for 60 KB.
    client.h2.encoder.encode = partial(  # type: ignore[method-assign]
        client.h2.encoder.encode, huffman=False
    )
    try:
        stream = client.open(extra=headers)
        client.send(stream, frame(GOOD))
        return client.wait(stream)
    except ConnectionError:
        return None


def assert_serves(exposed: Server) -> None:
    with RawHttp2(exposed.address) as client:
        assert client.call(GOOD).grpc_status == 0


@pytest.mark.parametrize("is_acknowledged", [False, True], ids=["at once", "after settings"])
@pytest.mark.parametrize("headers", BOMBS.values(), ids=BOMBS)
def test_header_bombs(exposed: Server, headers: Headers, is_acknowledged: bool) -> None:
    """Each ends, with an answer or without; memory comes back, and others are served.

    grpcio keeps to its limit from the moment on that the client has acknowledged the server's
    settings, so a client that does not wait for them is the worse one.
    """
    assert_serves(exposed)
    before = exposed.rss_bytes()
    for _ in range(NUM_BOMBS):
        with RawHttp2(exposed.address) as client:
            if is_acknowledged:
                client.call(GOOD)
            answer = ended(client, headers)
            if is_acknowledged and answer is not None:
                assert answer.grpc_status != 0
    assert_serves(exposed)
    assert exposed.rss_bytes() - before < GROWTH_BYTES


@pytest.mark.parametrize("name", ["Content-Type", "GRPC-TIMEOUT", "X-Note"])
def test_names_in_capitals(exposed: Server, name: str) -> None:
    """HTTP/2 forbids them: taken in lower case or refused, never anything else."""
    with RawHttp2(exposed.address) as client:
        answer = ended(client, [(name, "1S")])
    assert answer is None or answer.grpc_status in {0, None} or answer.http_status == "400"
    assert_serves(exposed)


DOUBLED: dict[str, Headers] = {
    "deadlines": [("grpc-timeout", "1u"), ("grpc-timeout", "20S")],
    "encodings": [("grpc-encoding", "identity"), ("grpc-encoding", "gzip")],
    "content types": [("content-type", "application/grpc"), ("content-type", "text/plain")],
    "methods": [(":method", "GET")],
    "paths": [(":path", "/another/Path")],
    "authorities": [(":authority", "another")],
    "te": [("te", "gzip")],
    "connection": [("connection", "close"), ("transfer-encoding", "chunked")],
    "lengths": [("content-length", "1"), ("content-length", "2")],
    "a new line": [("x-note", "a\r\nx-forged: b")],
    "a zero": [("x-note", "a\0b")],
    "an empty name": [("", "v")],
    "a colon": [(":x-pseudo", "v")],
}


@pytest.mark.parametrize("headers", DOUBLED.values(), ids=DOUBLED)
def test_headers_that_contradict_each_other(exposed: Server, headers: Headers) -> None:
    """The call ends one way or the other, and the next one is served."""
    with RawHttp2(exposed.address) as client:
        answer = ended(client, headers)
        assert answer is None or answer.ended or client.goaway is not None
    assert_serves(exposed)


def test_a_binary_header_that_is_none(exposed: Server) -> None:
    """What is called binary and is not in base64 costs its own call at most."""
    with RawHttp2(exposed.address) as client:
        for value in ("!!!", "a", "===", "\u00ff" * 10):
            ended(client, [("x-note-bin", value)])
    assert_serves(exposed)
    assert INFER not in exposed.output()
