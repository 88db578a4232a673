"""Limits on connections: how many, how old, how silent, how loud, with how much metadata."""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from time import monotonic
from typing import Any

import grpc
import pytest
from tritonclient.grpc import service_pb2 as pb

from helpers.http2_frames import FLOODS, PING
from helpers.messages import GOOD
from helpers.raw_http2 import RawHttp2
from helpers.rpc_client import SERVICE
from helpers.server import Server, ServerPool

GOAWAY, NO_ERROR, ENHANCE_YOUR_CALM = 7, 0, 11


@pytest.fixture
def few(servers: ServerPool, quick_repository: Path) -> Server:
    """A server that lets four connections in."""
    flags = ("--grpc-max-connections", "4")
    return servers.get("--model-repository", quick_repository, *flags)


def is_let_in(client: RawHttp2) -> bool:
    """Whether a connection is served; one too many is closed without an answer."""
    try:
        return client.call(GOOD).grpc_status == 0
    except (ConnectionError, TimeoutError):
        return False


def test_no_more_connections_than_allowed(few: Server) -> None:
    """The fifth is closed; the four are served on; when one leaves there is room again."""
    with ExitStack() as stack:
        four = [stack.enter_context(RawHttp2(few.address)) for _ in range(4)]
        assert [is_let_in(client) for client in four] == [True] * 4
        with RawHttp2(few.address) as fifth:
            assert not is_let_in(fifth)
        assert [is_let_in(client) for client in four] == [True] * 4
        four[0].socket.close()
        until = monotonic() + 10
        while True:  # until the server has seen that it left
            with RawHttp2(few.address) as again:
                if is_let_in(again):
                    break
            assert monotonic() < until


def test_silent_connections_count(few: Server) -> None:
    """Four that say nothing keep the fifth out: the bound holds before a handshake."""
    host, port = few.address.rsplit(":", 1)
    with ExitStack() as stack:
        for _ in range(4):
            silent = stack.enter_context(socket.create_connection((host, int(port)), timeout=20))
            assert silent.recv(1)  # the server's first frame: it has been let in
        with RawHttp2(few.address) as fifth:
            assert not is_let_in(fifth)


@pytest.fixture
def aging(servers: ServerPool, quick_repository: Path) -> Server:
    """A server whose connections grow old within a moment."""
    flags = ("--grpc-max-connection-age", "100")
    return servers.get("--model-repository", quick_repository, *flags)


def test_an_old_connection_is_asked_to_close(aging: Server) -> None:
    """By a GOAWAY without an error, though nothing was called on it."""
    with RawHttp2(aging.address) as client:
        assert next(error for kind, error in frames(client.socket) if kind == GOAWAY) == NO_ERROR


def frames(connection: socket.socket) -> Iterator[tuple[int, int]]:
    """Type and last four bytes of each frame: in a GOAWAY without text, its error.

    By hand, because h2 takes no more frames after the first GOAWAY, and gRPC sends two.
    """
    with connection.makefile("rb") as stream:
        while head := stream.read(9):
            body = stream.read(int.from_bytes(head[:3]))
            yield head[3], int.from_bytes(body[4:8])


def test_clients_do_not_notice(aging: Server) -> None:
    """Calls over a dozen ages of connections: each is answered, on more than one connection."""
    connections: set[frozenset[str]] = set()
    with grpc.insecure_channel(aging.address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        method: Any = channel.unary_unary(f"{SERVICE}ModelInfer")
        until = monotonic() + 1.5
        while monotonic() < until or len(connections) < 3:
            reply, call = method.with_call(GOOD, timeout=20, wait_for_ready=True)
            assert pb.ModelInferResponse.FromString(reply).model_name == "pair"
            connections.add(_local_ports(aging))
            assert call.code() is grpc.StatusCode.OK


def test_an_open_stream_outlives_the_age_of_its_connection(aging: Server) -> None:
    """Without a grace a camera's stream is not cut, however old its connection is."""
    requests: queue.Queue[bytes | None] = queue.Queue()
    is_left = threading.Event()  # the connection has been given up for new calls

    def on_state(state: grpc.ChannelConnectivity) -> None:
        if state is grpc.ChannelConnectivity.IDLE and is_ready.is_set():
            is_left.set()
        if state is grpc.ChannelConnectivity.READY:
            is_ready.set()

    is_ready = threading.Event()
    with grpc.insecure_channel(aging.address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        channel.subscribe(on_state)
        method: Any = channel.stream_stream(f"{SERVICE}ModelStreamInfer")
        replies = method(iter(requests.get, None), timeout=60)
        for _ in range(2):
            requests.put(GOOD)
            reply = pb.ModelStreamInferResponse.FromString(next(replies))
            assert reply.infer_response.model_name == "pair"
            assert is_left.wait(20)  # before the first reply, or after it: the stream goes on
        requests.put(None)
        assert next(replies, None) is None
        assert replies.code() is grpc.StatusCode.OK


def _local_ports(server: Server) -> frozenset[str]:
    """Which connections this machine has open to the server."""
    port = f"{int(server.address.rsplit(':', 1)[1]):04X}"
    tables = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))  # gRPC's IPv4 sockets are in the other
    lines = [line for table in tables for line in table.read_text().splitlines()[1:]]
    return frozenset(
        fields[1]
        for fields in map(str.split, lines)
        if fields[2].endswith(f":{port}") and fields[3] == "01"
    )


@pytest.fixture
def watchful(servers: ServerPool, quick_repository: Path) -> Server:
    """A server that asks soon whether a client is still there."""
    flags = ("--grpc-keepalive-time", "200", "--grpc-keepalive-timeout", "300")
    return servers.get("--model-repository", quick_repository, *flags)


def test_a_client_that_pings_too_often_is_cut_off(watchful: Server) -> None:
    """Three strikes, as everywhere in gRPC: GOAWAY, ENHANCE_YOUR_CALM."""
    with RawHttp2(watchful.address) as client:
        client.call(GOOD)
        client.send_raw(FLOODS["ping"] * 30)
        errors = [error for kind, error in frames(client.socket) if kind == GOAWAY]
    assert errors[-1] == ENHANCE_YOUR_CALM


def test_a_client_that_is_gone_is_noticed(watchful: Server) -> None:
    """One that answers no ping while its call is open is hung up on."""
    with RawHttp2(watchful.address) as client:
        client.open(f"{SERVICE}ModelStreamInfer")
        kinds = [kind for kind, _ in frames(client.socket)]  # to the end of the connection
    assert PING in kinds
    assert kinds.index(PING) < kinds.index(GOAWAY)


@pytest.fixture
def terse(transport: str, servers: ServerPool, quick_repository: Path) -> Server:
    """A server that takes 4,000 bytes of metadata."""
    flags = ("--transport", transport, "--grpc-max-metadata-bytes", "4000")
    return servers.get("--model-repository", quick_repository, *flags)


def test_metadata_over_the_limit(terse: Server) -> None:
    """Refused to a client of gRPC's own, always, and the next call is served."""
    with grpc.insecure_channel(terse.address) as channel:
        method: Any = channel.unary_unary(f"{SERVICE}ModelInfer")
        for size, is_right in [(3000, True), (4000, False), (3000, True), (60_000, False)] * 3:
            call = method.future(GOOD, metadata=[("x-note", "n" * size)], timeout=20)
            assert (call.code() is grpc.StatusCode.OK) is is_right, (size, call.details())
        assert method(GOOD, timeout=20)
