"""How a client reaches its servers: address, TLS, load balancing, deadlines and retries."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc

from headrace_client.errors import InvalidInput
from headrace_proto.service import SERVICE

# Reading these twice changes nothing, so gRPC itself may ask again when a server is briefly away.
# Absent on purpose: ModelInfer, which may have run although no reply came, and the probes
# (ServerLive, ServerReady, ModelReady, Check), for which UNAVAILABLE is the answer.
RETRIED_METHODS = (
    "ServerMetadata",
    "ModelMetadata",
    "ModelConfig",
    "ModelStatistics",
    "RepositoryIndex",
)
# gRPC caps attempts at 5 and stretches each wait at random; a server's grpc-retry-pushback-ms wins.
_RETRY_POLICY = {
    "maxAttempts": 4,
    "initialBackoff": "0.1s",
    "maxBackoff": "1s",
    "backoffMultiplier": 2,
    "retryableStatusCodes": ["UNAVAILABLE"],
}
_UNLIMITED = -1
_HEADER_KEY = re.compile("[0-9a-z_.-]+")  # what HTTP/2 and gRPC allow

Option = tuple[str, str | int]


@dataclass(frozen=True, slots=True)
class Tls:
    """Certificates for an encrypted connection; PEM files throughout.

    Args:
        root_cert: Authorities to trust; None trusts gRPC's built-in list.
        client_cert: Certificate chain that this client shows, for mutual TLS.
        client_key: Private key of `client_cert`.
        server_name: Name to expect in the server's certificate, where it is not the host's.
    """

    root_cert: str | os.PathLike[str] | None = None
    client_cert: str | os.PathLike[str] | None = None
    client_key: str | os.PathLike[str] | None = None
    server_name: str | None = None

    def __post_init__(self) -> None:
        if (self.client_cert is None) != (self.client_key is None):
            raise InvalidInput("mutual TLS needs both client_cert and client_key; one was given")

    def credentials(self) -> grpc.ChannelCredentials:
        """Read the files.

        Raises:
            InvalidInput: A file cannot be read.
        """
        return grpc.ssl_channel_credentials(
            root_certificates=_read(self.root_cert),
            private_key=_read(self.client_key),
            certificate_chain=_read(self.client_cert),
        )


def _check_header(key: str, value: str | bytes) -> None:
    is_binary = key.endswith("-bin")
    if not _HEADER_KEY.fullmatch(key):
        raise InvalidInput(f"metadata key is {key!r}; expected lower case, as in 'x-request-owner'")
    if isinstance(value, bytes) != is_binary:
        raise InvalidInput(f"metadata {key!r} is a {type(value).__name__}; keys in -bin take bytes")
    if isinstance(value, str) and not (value.isascii() and value.isprintable()):
        raise InvalidInput(f"metadata {key!r} is not printable ASCII; give bytes, under {key}-bin")


def _read(path: str | os.PathLike[str] | None) -> bytes | None:
    if path is None:
        return None
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InvalidInput(f"cannot read TLS file {os.fspath(path)!r}: {error.strerror}") from error


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that a client is told once; see `Client` for the meaning of each."""

    url: str
    timeout_s: float | None = 60.0
    tls: Tls | None = None
    load_balancing: str | None = None
    wait_for_ready: bool = False
    metadata: tuple[tuple[str, str | bytes], ...] = ()
    channel_options: Sequence[Option] = ()

    def __post_init__(self) -> None:
        if not self.url or self.url.startswith(("http://", "https://", "grpc://")):
            raise InvalidInput(
                f"url is {self.url!r}; expected host:port, such as localhost:8001, or a gRPC "
                "target, such as dns:///headrace.example:8001 (for encryption, give tls=Tls(…))"
            )
        if self.load_balancing not in {None, "pick_first", "round_robin"}:
            raise InvalidInput(
                f"load_balancing is {self.load_balancing!r}; expected 'pick_first', 'round_robin' "
                "or None (round_robin for dns: targets, else pick_first)"
            )
        for key, value in self.metadata:
            _check_header(key, value)
        self.deadline_s(None)

    def deadline_s(self, timeout_s: float | None) -> float | None:
        """Return the bound for one call: its own, else the client's; None is none at all."""
        chosen = self.timeout_s if timeout_s is None else timeout_s
        if chosen is None or chosen == math.inf:
            return None
        if not chosen > 0:
            raise InvalidInput(f"timeout_s is {chosen}; expected more than 0, or math.inf for none")
        return chosen

    def options(self) -> list[Option]:
        """Return the channel's options; those of the caller come last and win."""
        chosen = self.load_balancing
        if chosen is None:
            chosen = "round_robin" if self.url.startswith("dns:") else "pick_first"
        service_config = {
            "loadBalancingConfig": [{chosen: {}}],
            "methodConfig": [
                {
                    "name": [{"service": SERVICE, "method": name} for name in RETRIED_METHODS],
                    "retryPolicy": _RETRY_POLICY,
                }
            ],
        }
        options: list[Option] = [
            ("grpc.max_send_message_length", _UNLIMITED),
            ("grpc.max_receive_message_length", _UNLIMITED),
            ("grpc.service_config", json.dumps(service_config)),
            # A config out of DNS could switch on retries of ModelInfer.
            ("grpc.service_config_disable_resolution", 1),
            ("grpc.primary_user_agent", "headrace-client"),
        ]
        if self.tls is not None and self.tls.server_name is not None:
            options.append(("grpc.ssl_target_name_override", self.tls.server_name))
        return [*options, *self.channel_options]
