"""Settings of what clients and scrapers meet: the gRPC service, TLS, limits, metrics."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final, Literal

from headrace.config.option import option

MAX_PORT: Final = 65_535
INT32_MAX: Final = 2**31 - 1
"""The most that one gRPC message can hold, and gRPC's own "never" for intervals."""
MIB: Final = 2**20
DEFAULT_CONNECTION_AGE_MS: Final = 600_000
"""Minutes, as autoscalers count: load is even again one age after a server was added."""
DEFAULT_CONNECTIONS: Final = 4096
"""An idle one took 40 KB under grpcio: 160 MB in all."""


@dataclass(frozen=True, kw_only=True)
class GrpcSettings:
    """Where and how the gRPC service listens."""

    GROUP: ClassVar = "gRPC"

    grpc_address: str = option("0.0.0.0", "Address that the gRPC service listens on.")
    grpc_port: int = option(
        8001,
        "Port of the gRPC service; 0 picks a free one.",
        low=0,
        high=MAX_PORT,
    )
    reuse_grpc_port: bool = option(
        False, "Let several servers listen on one port, if each of them has this set."
    )
    transport: Literal["grpcio", "native"] = option(
        "grpcio",
        "grpcio: complete, the default. native: several times faster for small messages, "
        "without TLS, connection age and a limit on a message that is still arriving: for callers "
        "that you trust. Needs the extra [native].",
    )
    grpc_io_threads: int = option(
        1, "Threads that a transport may use for reading and writing.", low=1, high=64
    )
    grpc_infer_response_compression_level: Literal["none", "low", "medium", "high"] = option(
        "none",
        "How replies are compressed for clients that accept it: low gzip, else deflate. It costs: "
        "while grpcio compresses, about 20 ms a MiB, nothing else is served.",
    )
    grpc_keepalive_time_ms: int = option(
        7_200_000,
        "Milliseconds of silence after which the server pings a client.",
        flag="grpc-keepalive-time",
        low=1,
        high=INT32_MAX,
    )
    grpc_keepalive_timeout_ms: int = option(
        20_000,
        "Milliseconds that the server waits for the answer to a ping before it hangs up.",
        flag="grpc-keepalive-timeout",
        low=1,
        high=INT32_MAX,
    )
    grpc_http2_min_recv_ping_interval_without_data_ms: int = option(
        10_000,
        "Milliseconds that a silent client must leave between its pings, or be cut off.",
        flag="grpc-http2-min-recv-ping-interval-without-data",
        low=0,
        high=INT32_MAX,
    )
    grpc_max_connection_age_ms: int | None = option(
        None,
        "Milliseconds, a tenth more or less, after which a connection is asked to close: its "
        "calls are finished, its client connects anew, and load spreads to new servers; 0 = never.",
        flag="grpc-max-connection-age",
        low=0,
        high=INT32_MAX,
        default_text=f"{DEFAULT_CONNECTION_AGE_MS}; native has none",
    )
    grpc_max_connection_age_grace_ms: int = option(
        0,
        "Milliseconds that calls on such a connection have to finish; 0 = as long as they need.",
        flag="grpc-max-connection-age-grace",
        low=0,
        high=INT32_MAX,
    )


@dataclass(frozen=True, kw_only=True)
class TlsSettings:
    """Encryption of the gRPC service. The files are read again when they change."""

    GROUP: ClassVar = "TLS"

    grpc_use_ssl: bool = option(False, "Serve gRPC over TLS.")
    grpc_use_ssl_mutual: bool = option(
        False, "Serve gRPC over TLS and accept only clients with a certificate of the root."
    )
    grpc_server_cert: Path | None = option(
        None, "File with the server's certificate chain, PEM; read again when it changes."
    )
    grpc_server_key: Path | None = option(
        None, "File with the server's private key, PEM; read again when it changes."
    )
    grpc_root_cert: Path | None = option(
        None,
        "File with the root certificates that clients' certificates are checked with, PEM; read "
        "again when it changes.",
    )


@dataclass(frozen=True, kw_only=True)
class LimitSettings:
    """What one request, and all of them together, may take."""

    GROUP: ClassVar = "Limits"

    max_request_bytes: int = option(
        64 * MIB,
        "Largest request message, in bytes, after decompression.",
        flag="grpc-max-request-bytes",
        low=1024,
        high=INT32_MAX,
    )
    max_response_bytes: int = option(
        256 * MIB,
        "Largest response message, in bytes.",
        flag="grpc-max-response-bytes",
        low=1024,
        high=INT32_MAX,
    )
    max_concurrent_streams: int = option(
        1024,
        "Calls that one connection may have open at the same time.",
        flag="grpc-max-concurrent-streams",
        low=1,
        high=INT32_MAX,
    )
    max_stream_requests: int = option(
        256,
        "Requests that one ModelStreamInfer may have in the server, up to their replies' being "
        "written; after so many no more of that stream are read.",
        flag="grpc-max-stream-requests",
        low=1,
        high=65_536,
    )
    max_stream_bytes: int = option(
        64 * MIB,
        "Bytes of those requests and replies; beyond them no more of that stream are read.",
        flag="grpc-max-stream-bytes",
        low=1024,
        high=2**50,
    )
    grpc_max_connections: int | None = option(
        None,
        "Connections that may be open at the same time; more are closed as they come.",
        low=1,
        high=INT32_MAX,
        default_text=f"{DEFAULT_CONNECTIONS}; native has no such limit",
    )
    grpc_max_metadata_bytes: int = option(
        16_384,
        "Bytes of metadata that a call may carry, as HTTP/2 counts them: 32 more for each header.",
        low=1024,
        high=16 * MIB,
    )
    max_tensors: int = option(
        256, "Tensors that one request may carry or ask for.", low=1, high=16_384
    )
    max_elements: int = option(
        2**28, "Elements that one tensor of a request may have.", low=1, high=2**40
    )
    max_strings: int = option(
        2**17,
        "Elements of BYTES tensors (strings) that one request may carry. Each takes about a "
        "microsecond of the CPU, and part of it keeps all other requests waiting.",
        low=1,
        high=2**31,
    )
    max_bytes_in_flight: int = option(
        1024 * MIB, "Bytes of all requests that are being served, together.", low=1024, high=2**50
    )
    max_queue_size: int = option(
        1024,
        "Requests that may wait for one model, or for each of its priority levels, where its "
        "configuration does not say; more are refused.",
        low=1,
        high=1_000_000,
        fix="an unbounded queue is not offered: it turns overload into time-outs. "
        "Choose how many requests may wait",
    )
    max_sequence_state_bytes: int = option(
        256 * MIB,
        "Bytes of state that the sequences of one model may carry, all together; it bounds how "
        "many of them are served at a time.",
        low=1024,
        high=2**50,
    )
    overload_status: Literal["UNAVAILABLE", "RESOURCE_EXHAUSTED"] = option(
        "UNAVAILABLE",
        "Status of a refused request. UNAVAILABLE is Triton's; some clients retry it.",
    )


@dataclass(frozen=True, kw_only=True)
class MetricsSettings:
    """The HTTP endpoint of metrics and health."""

    GROUP: ClassVar = "Metrics"

    allow_metrics: bool = option(True, "Serve /metrics and the health endpoints over HTTP.")
    metrics_address: str = option(
        "",
        "Address that they listen on.",
        default_text="the address of gRPC",
    )
    metrics_port: int = option(
        8002, "Port that they listen on; 0 picks a free one.", low=0, high=MAX_PORT
    )
    allow_gpu_metrics: bool = option(True, "Show figures of the GPUs, where there are any.")
    allow_cpu_metrics: bool = option(True, "Show figures of the machine's CPU and memory.")
    metrics_interval_ms: int = option(
        2000, "Milliseconds for which a reading of those figures is good.", low=1, high=INT32_MAX
    )
