"""Settings as gRPC takes them."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.config import ServerConfig
from headrace.port import channel_options, joined


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
    assert found["grpc.keepalive_timeout_ms"] == found["grpc.http2.ping_timeout_ms"] == 2
    assert found["grpc.http2.min_ping_interval_without_data_ms"] == 3
    assert found["grpc.max_connection_age_ms"] == 4
    assert found["grpc.max_connection_age_grace_ms"] == 5
    assert not [name for name in options(grpc_max_connection_age_ms=0) if "_age_" in name]


def test_connections_age_and_are_counted_by_default() -> None:
    """So that load balancing evens out and nothing is unbounded; the native front has neither."""
    found = options()
    assert found["grpc.max_connection_age_ms"] == 600_000
    assert found["grpc.max_allowed_incoming_connections"] == 4096
    assert "grpc.max_connection_age_grace_ms" not in found  # calls may take as long as they need
    behind = options(transport="native")  # of the server behind the native front
    assert not {"grpc.max_connection_age_ms", "grpc.max_allowed_incoming_connections"} & set(behind)


def test_metadata_over_the_limit_is_refused_always() -> None:
    """Between its soft and its hard limit grpcio would refuse by chance."""
    found = options(grpc_max_metadata_bytes=5000)
    assert found["grpc.max_metadata_size"] == found["grpc.absolute_max_metadata_size"] == 5000


@pytest.mark.parametrize(("level", "number"), [("none", None), ("low", 1), ("high", 3)])
def test_compression_of_replies(level: str, number: int | None) -> None:
    """Off unless it is asked for; the numbers are gRPC's."""
    found = options(grpc_infer_response_compression_level=level)
    assert found.get("grpc.default_compression_level") == number
