"""Settings as the transport takes them."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.config import ServerConfig
from headrace.fronts import channel_options, credentials, joined


@pytest.mark.parametrize(
    ("address", "text"),
    [
        ("127.0.0.1", "127.0.0.1:8001"),
        ("localhost", "localhost:8001"),
        ("0.0.0.0", "0.0.0.0:8001"),
        ("::1", "[::1]:8001"),
        ("[::1]", "[::1]:8001"),
        ("fe80::1%eth0", "[fe80::1%eth0]:8001"),
    ],
)
def test_addresses(address: str, text: str) -> None:
    """IPv6 stands in brackets, once."""
    assert joined(address, 8001) == text


def options(**settings: Any) -> dict[str, Any]:
    return dict(channel_options(ServerConfig(**settings)))


def test_limits_reach_grpc() -> None:
    """Each under gRPC's own name; up to 2 GiB less a byte."""
    most = 2**31 - 1
    found = options(
        max_request_bytes=most,
        max_response_bytes=most,
        max_bytes_in_flight=2**40,
        max_concurrent_streams=7,
        reuse_grpc_port=True,
    )
    assert found["grpc.max_receive_message_length"] == most
    assert found["grpc.max_send_message_length"] == most
    assert found["grpc.max_concurrent_streams"] == 7
    assert found["grpc.so_reuseport"] == 1


def test_two_servers_never_share_a_port_by_accident() -> None:
    """GRPC's own default would let the second one in, silently."""
    assert options()["grpc.so_reuseport"] == 0


def test_keepalive_and_age_reach_grpc() -> None:
    """Milliseconds; an age of zero is none at all."""
    found = options(
        grpc_keepalive_time_ms=1,
        grpc_keepalive_timeout_ms=2,
        grpc_http2_min_recv_ping_interval_without_data_ms=3,
        grpc_max_connection_age_ms=4,
        grpc_max_connection_age_grace_ms=5,
    )
    assert found["grpc.keepalive_time_ms"] == 1
    assert found["grpc.keepalive_timeout_ms"] == 2
    assert found["grpc.http2.min_ping_interval_without_data_ms"] == 3
    assert found["grpc.max_connection_age_ms"] == 4
    assert found["grpc.max_connection_age_grace_ms"] == 5
    assert not [name for name in options() if "age" in name.split("_") and "connection" in name]


def test_without_tls_there_are_no_credentials() -> None:
    """Plain text needs no files."""
    assert credentials(ServerConfig()) is None
