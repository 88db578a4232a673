"""Floods over grpcio: frames that cost nothing to send cost others nothing.

The same of the native transport, whose HTTP/2 ends most of them: `test_native_transport.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.http2_frames import CONTINUATION, DATA, FLOODS, HEADERS, connect, http2_frame
from helpers.messages import GOOD
from helpers.raw_http2 import RawHttp2, frame
from helpers.server import Server, ServerPool
from load.soak import leftovers

GROWTH_BYTES = 40e6
MAX_FRAMES = 1_000_000  # of a flood that must be ended: no server takes so many


def assert_serves(server: Server) -> None:
    with RawHttp2(server.address) as client:
        assert client.call(GOOD).grpc_status == 0


@pytest.fixture
def unharmed(servers: ServerPool, quick_repository: Path) -> Iterator[Server]:
    """The server; after the test it must serve, have nothing left over, and not have grown."""
    server = servers.get("--model-repository", quick_repository, "--transport", "grpcio")
    assert_serves(server)
    before = server.rss_bytes()
    yield server
    assert_serves(server)
    assert leftovers(server) == {}
    assert server.rss_bytes() - before < GROWTH_BYTES


@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS)
def test_frames_by_the_hundred_thousand(unharmed: Server, flood: bytes) -> None:
    """Others are served amid them."""
    with RawHttp2(unharmed.address) as client:
        for turn in range(1_000):
            client.send_raw(flood * 100)
            if turn == 500:
                assert_serves(unharmed)


@pytest.mark.parametrize("with_body", [True, False])
def test_rapid_reset(unharmed: Server, with_body: bool) -> None:
    """Calls opened and reset by the thousand: grpcio ends none of it, and others are served."""
    with RawHttp2(unharmed.address) as client:
        for number in range(3_000):
            stream = client.open()
            if with_body:
                client.send(stream, frame(GOOD), end=False)
            client.reset(stream)
            if number % 1_000 == 500:
                assert_serves(unharmed)


@pytest.mark.parametrize("kind", [CONTINUATION, DATA])
def test_a_body_or_headers_without_end(unharmed: Server, kind: int) -> None:
    """Empty frames for ever end the connection."""
    with RawHttp2(unharmed.address) as client:
        if kind == DATA:
            stream = client.open()
        else:
            stream = 1
            client.send_raw(http2_frame(HEADERS, 0, stream, b"\x83"))
        num_sent = 0
        while not client.is_broken and num_sent < MAX_FRAMES:
            client.send_raw(http2_frame(kind, 0, stream) * 100)
            num_sent += 100
        assert num_sent < MAX_FRAMES


def test_silent_connections(unharmed: Server) -> None:
    """300 connections that say nothing keep nobody from being served."""
    silent = [connect(unharmed) for _ in range(300)]
    assert_serves(unharmed)
    for raw in silent:
        raw.close()
