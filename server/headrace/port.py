"""How a port is opened: its address and gRPC's options, out of the settings."""

from __future__ import annotations

from typing import Any, Final

from headrace.config import ServerConfig

COMPRESSION_LEVELS: Final = {"none": 0, "low": 1, "medium": 2, "high": 3}
"""gRPC's own numbers; it chooses by them among what a client accepts, as in Triton."""


def joined(address: str, port: int) -> str:
    """Write an address as gRPC takes it; IPv6 in brackets."""
    return f"[{address.strip('[]')}]:{port}" if ":" in address else f"{address}:{port}"


def channel_options(config: ServerConfig) -> list[tuple[str, Any]]:
    """Return gRPC's channel options for the settings."""
    compression = COMPRESSION_LEVELS[config.grpc_infer_response_compression_level]
    wanted: dict[str, int | None] = {
        "max_receive_message_length": config.max_request_bytes,
        "max_send_message_length": config.max_response_bytes,
        "max_concurrent_streams": config.max_concurrent_streams,
        "max_allowed_incoming_connections": config.grpc_max_connections,
        # Two numbers between which grpcio refuses at random: the same twice leaves nothing to luck.
        "max_metadata_size": config.grpc_max_metadata_bytes,
        "absolute_max_metadata_size": config.grpc_max_metadata_bytes,
        "so_reuseport": int(config.reuse_grpc_port),
        "keepalive_time_ms": config.grpc_keepalive_time_ms,
        "keepalive_timeout_ms": config.grpc_keepalive_timeout_ms,
        # Which alone does nothing in grpcio 1.85: who answered no ping was there for 60 s.
        "http2.ping_timeout_ms": config.grpc_keepalive_timeout_ms,
        "http2.min_ping_interval_without_data_ms": (
            config.grpc_http2_min_recv_ping_interval_without_data_ms
        ),
        "max_connection_age_ms": config.grpc_max_connection_age_ms or None,
        "max_connection_age_grace_ms": config.grpc_max_connection_age_grace_ms or None,
        "default_compression_level": compression or None,
    }
    return [(f"grpc.{name}", value) for name, value in wanted.items() if value is not None]
