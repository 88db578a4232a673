"""Opens what decides who is served: certificates and the gate, and shows them in the metrics."""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from headrace.config import ServerConfig
from headrace.metrics import Metrics
from headrace.rpc.gate import Gate
from headrace.rpc.tls import Certificates, TlsFiles
from headrace.rpc.tokens import TokenFile

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Access:
    """Who is served.

    Attributes:
        gate: Refuses calls; None lets all through.
        certificates: For TLS; None serves in the clear.
    """

    gate: Gate | None = None
    certificates: Certificates | None = None


def open_access(config: ServerConfig, metrics: Metrics, *, clock: Callable[[], float]) -> Access:
    """Read certificates and tokens.

    Raises:
        ConfigError: A file does not hold what its flag says.
    """
    certificates = None
    if config.uses_tls:
        assert config.grpc_server_cert is not None
        assert config.grpc_server_key is not None
        certificates = Certificates(
            TlsFiles(
                config.grpc_server_cert,
                config.grpc_server_key,
                config.grpc_root_cert,
                wants_client=config.grpc_use_ssl_mutual,
            )
        )
        _observe_certificates(metrics, certificates)
    tokens = None
    if config.grpc_auth_token_file is not None:
        tokens = TokenFile(config.grpc_auth_token_file, clock=clock)
    if tokens is None and not config.grpc_restricted_protocol:
        return Access(None, certificates)
    gate = Gate(config.grpc_restricted_protocol, tokens, asks_health_checks=config.grpc_auth_health)
    _observe_gate(metrics, gate, tokens)
    if certificates is None and not is_loopback(config.grpc_address):
        log.warning(
            "tokens and restricted headers travel unencrypted to %s: whoever can listen on the way "
            "can use them; add --grpc-use-ssl, or end TLS before headrace",
            config.grpc_address,
        )
    return Access(gate, certificates)


def is_loopback(address: str) -> bool:
    """Return whether only this machine can connect to an address."""
    try:
        return ipaddress.ip_address(address.strip("[]")).is_loopback
    except ValueError:
        return address == "localhost"


def _observe_certificates(metrics: Metrics, certificates: Certificates) -> None:
    def expires_at(which: str) -> float:
        certificates.refresh()  # so that a renewal shows without a new connection
        return certificates.expires_at(which)

    for which in certificates.kinds:
        metrics.add_source(
            "headrace_tls_certificate_expiry_timestamp_seconds",
            partial(expires_at, which),
            certificate=which,
        )
    _observe_reloads(metrics, "tls", certificates.num_reloads)


def _observe_gate(metrics: Metrics, gate: Gate, tokens: TokenFile | None) -> None:
    for reason in gate.num_refused:
        read = partial(gate.num_refused.__getitem__, reason)
        metrics.add_source("headrace_access_refused_total", read, reason=reason)
    if tokens is None:
        return
    _observe_reloads(metrics, "tokens", tokens.num_reloads)

    def show_names() -> None:
        for name in tokens.num_calls:
            read = partial(tokens.num_calls.__getitem__, name)
            metrics.add_source("headrace_token_calls_total", read, token=name)

    show_names()
    tokens.on_reload = show_names


def _observe_reloads(metrics: Metrics, what: str, num_reloads: dict[str, int]) -> None:
    for result in num_reloads:
        read = partial(num_reloads.__getitem__, result)
        metrics.add_source("headrace_access_reloads_total", read, what=what, result=result)
