"""The native transport under attack: what its HTTP/2 must bear before any request reaches Python.

What was found, with the commands: docs/native-transport.md.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import h2.connection
import h2.errors
import pytest
from h2.settings import SettingCodes

from helpers.http2_frames import (
    CONTINUATION,
    DATA,
    FLOODS,
    HEADERS,
    PREFACE,
    SETTINGS,
    connect,
    http2_frame,
)
from helpers.messages import GOOD
from helpers.raw_http2 import INFER, RawHttp2, frame
from helpers.server import NO_DEBUG, Server, serving
from load.soak import leftovers

pytestmark = pytest.mark.native
ENHANCE_YOUR_CALM = int(h2.errors.ErrorCodes.ENHANCE_YOUR_CALM)
GROWTH_BYTES = 40e6


@pytest.fixture(scope="module")
def native(load_repository: Path) -> Iterator[Server]:
    arguments = ("--model-repository", load_repository, "--transport", "native")
    with serving(*arguments, env=NO_DEBUG) as server:
        yield server


@pytest.fixture
def unharmed(native: Server) -> Iterator[Server]:
    """The server; after the test it must serve, have nothing left over, and not have grown."""
    assert_serves(native)
    before = native.rss_bytes()
    yield native
    assert_serves(native)
    assert leftovers(native) == {}
    assert native.rss_bytes() - before < GROWTH_BYTES


def assert_serves(server: Server) -> None:
    with RawHttp2(server.address) as client:
        answer = client.call(GOOD)
    assert answer.grpc_status == 0


def wait_end(client: RawHttp2) -> None:
    """Reads until the server closes the connection or says that it will."""
    while not client.closed and client.goaway is None:
        client.pump()


@pytest.mark.parametrize("seed", range(4))
def test_garbage(unharmed: Server, seed: int) -> None:
    """200 connections of random bytes, with and without the preface."""
    chance = random.Random(seed)
    for index in range(200):
        with connect(unharmed) as raw, suppress(BrokenPipeError, ConnectionResetError):
            raw.sendall(PREFACE * (index % 2) + chance.randbytes(chance.randrange(400)))


@pytest.mark.parametrize("seed", range(4))
def test_random_frames(unharmed: Server, seed: int) -> None:
    """200 connections of well-formed frames in no sensible order."""
    chance = random.Random(seed)
    for _ in range(200):
        frames = (
            http2_frame(
                chance.randrange(12),
                chance.randrange(256),
                chance.randrange(5),
                chance.randbytes(chance.randrange(60)),
            )
            for _ in range(10)
        )
        with connect(unharmed) as raw, suppress(BrokenPipeError, ConnectionResetError):
            raw.sendall(PREFACE + http2_frame(SETTINGS, 0, 0) + b"".join(frames))


def one_call() -> bytes:
    """What a client sends for one good call, from the preface on."""
    connection = h2.connection.H2Connection()
    connection.initiate_connection()
    path = [(":method", "POST"), (":scheme", "http"), (":path", INFER), (":authority", "here")]
    connection.send_headers(1, [*path, ("te", "trailers"), ("content-type", "application/grpc")])
    connection.send_data(1, frame(GOOD), end_stream=True)
    sent: bytes = connection.data_to_send()
    return sent


def test_connections_cut_anywhere(unharmed: Server) -> None:
    """A good call whose connection closes after every third byte of it."""
    sent = one_call()
    for length in range(0, len(sent), 3):
        with connect(unharmed) as raw:
            raw.sendall(sent[:length])


def test_bytes_one_at_a_time(unharmed: Server) -> None:
    """A sender as slow as can be is served all the same."""
    with RawHttp2(unharmed.address) as client:
        stream = client.open()
        for byte in frame(GOOD)[:-1]:
            client.send(stream, bytes([byte]), end=False)
        client.send(stream, frame(GOOD)[-1:])
        assert client.wait(stream).grpc_status == 0


@pytest.mark.parametrize("with_body", [True, False])
def test_rapid_reset(unharmed: Server, with_body: bool) -> None:
    """Calls opened and reset by the thousand: the connection is told to calm down."""
    with RawHttp2(unharmed.address) as client:
        num_sent = 0
        while not (client.is_broken or client.closed or client.goaway) and num_sent < 50_000:
            stream = client.open()
            if with_body:
                client.send(stream, frame(GOOD), end=False)
            client.reset(stream)
            num_sent += 1
        wait_end(client)
        assert client.goaway in {ENHANCE_YOUR_CALM, None}, "None: the reset came before it"
        assert num_sent < 50_000


def test_headers_without_end(unharmed: Server) -> None:
    """CONTINUATION frames for ever end the connection."""
    with RawHttp2(unharmed.address) as client:
        client.send_raw(http2_frame(HEADERS, 0, 1, b"\x83"))
        while not client.is_broken:
            client.send_raw(http2_frame(CONTINUATION, 0, 1))


def test_data_without_end(unharmed: Server) -> None:
    """Empty DATA frames for ever end the connection."""
    with RawHttp2(unharmed.address) as client:
        stream = client.open()
        while not client.is_broken:
            client.send_raw(http2_frame(DATA, 0, stream) * 100)
        wait_end(client)


@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS)
def test_flood(unharmed: Server, flood: bytes) -> None:
    """100,000 frames that cost nothing to send cost nothing to get, while others are served."""
    with RawHttp2(unharmed.address) as client:
        for turn in range(1_000):
            client.send_raw(flood * 100)
            if turn == 500:
                assert_serves(unharmed)


@pytest.mark.parametrize("size_bytes", [17_000, 60_000, 200_000])
def test_huge_metadata(unharmed: Server, size_bytes: int) -> None:
    """More metadata than 16 KiB is refused early: by HTTP 431, or with the connection."""
    with RawHttp2(unharmed.address) as client:
        stream = client.open(extra=[("x-long", "v" * size_bytes)])
        client.send(stream, frame(GOOD))
        answer = client.wait(stream)
    assert answer.grpc_status is None
    assert answer.http_status == "431" or client.goaway == ENHANCE_YOUR_CALM


@pytest.mark.parametrize("content_type", [None, "text/plain", "application/json"])
def test_another_content_type(unharmed: Server, content_type: str | None) -> None:
    """The front does not look at the type: a proper message is answered, and that is all."""
    with RawHttp2(unharmed.address) as client:
        stream = client.open(content_type=content_type)
        client.send(stream, frame(GOOD))
        assert client.wait(stream).grpc_status == 0


def test_more_streams_than_allowed(unharmed: Server) -> None:
    """As many as the server announced are served; those above are refused one by one."""
    with RawHttp2(unharmed.address) as client:
        client.pump()
        allowed = client.h2.remote_settings.max_concurrent_streams
        # What the server allows, this client's own state machine must not enforce.
        client.h2.remote_settings[SettingCodes.MAX_CONCURRENT_STREAMS] = 2 * allowed
        client.h2.remote_settings.acknowledge()
        streams = [client.open() for _ in range(allowed + 50)]
        for stream in streams:
            client.send(stream, frame(GOOD))
        answers = [client.wait(stream) for stream in streams]
    refused = [answer for answer in answers if answer.grpc_status is None]
    assert len(refused) == 50
    assert {answer.reset for answer in refused} == {int(h2.errors.ErrorCodes.REFUSED_STREAM)}


def test_silent_connections(unharmed: Server) -> None:
    """300 connections that say nothing keep nobody from being served."""
    silent = [connect(unharmed) for _ in range(300)]
    assert_serves(unharmed)
    for raw in silent:
        raw.close()
