"""Clients that ask and do not read: what is held for them is bounded, over both transports."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import grpc
import numpy as np
import pytest

from helpers.messages import GOOD, first_output, identity
from helpers.raw_http2 import RawHttp2, frame
from helpers.rpc_client import RpcClient, told
from helpers.server import NO_DEBUG, Server, serving

BOUND_BYTES = 64 << 20
REPLY_BYTES = 4 << 20
WITHOUT_BOUND = 4 * BOUND_BYTES // REPLY_BYTES  # so many unread replies, and nothing was refused


@pytest.fixture
def bounded(transport: str, load_repository: Path) -> Iterator[Server]:
    arguments = ("--max-bytes-in-flight", str(BOUND_BYTES), "--transport", transport)
    pool = ("--pinned-memory-pool-byte-size", str(BOUND_BYTES))
    repository = ("--model-repository", load_repository)
    with serving(*repository, *arguments, *pool, env=NO_DEBUG) as server:
        yield server
    assert "Traceback" not in server.output(), "callers that leave are no errors of the server"


def ask_without_reading(server: Server, client: RawHttp2) -> dict[str, str] | None:
    """Ask for large replies until another caller is refused; the trailers with that."""
    large = frame(identity(np.ones((1, REPLY_BYTES // 4), np.float32), "FP32"))
    with RpcClient(server.address) as other:
        for _ in range(WITHOUT_BOUND):
            client.send(client.open(), large)
            call = other.start(GOOD)
            code, text = told(call)
            if code is not grpc.StatusCode.OK:
                assert code is grpc.StatusCode.UNAVAILABLE
                assert "do not read" in text
                return dict(call.trailing_metadata())
    return None


def test_unread_replies_are_bounded(bounded: Server, transport: str) -> None:
    """Beyond --max-bytes-in-flight new requests are refused, until the replies are read or gone."""
    # What keeps clients from retrying; the native front reserves the name for itself.
    push_back = {"grpc-retry-pushback-ms": "-1"} if transport == "grpcio" else {}
    before = bounded.rss_bytes()
    with RawHttp2(bounded.address, window_bytes=100) as client:
        assert ask_without_reading(bounded, client) == push_back
        assert bounded.rss_bytes() - before < 4 * BOUND_BYTES
    with RawHttp2(bounded.address) as later:
        answer = later.call(GOOD)
        while answer.grpc_status == grpc.StatusCode.UNAVAILABLE.value[0]:
            answer = later.call(GOOD)  # the server has not yet noticed that the other one left
    assert answer.grpc_status == 0
    assert first_output(answer.message, np.float32).shape == (1, 4)
