"""The whole configuration of a server: frozen, and right once it exists."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from headrace.config.access import AccessSettings
from headrace.config.caching import CacheSettings
from headrace.config.control import ModelControlSettings
from headrace.config.network import (
    DEFAULT_CONNECTION_AGE_MS,
    DEFAULT_CONNECTIONS,
    GrpcSettings,
    LimitSettings,
    MetricsSettings,
    TlsSettings,
)
from headrace.config.option import options_of
from headrace.config.serving import DeviceSettings, LifeSettings, LogSettings, ModelSettings
from headrace.config.shared_memory import SharedMemorySettings
from headrace.config.timeline import TimelineSettings
from headrace.errors import ConfigError

_TLS_FILES: Final = ("grpc_server_cert", "grpc_server_key", "grpc_root_cert")
_ANY_ADDRESS: Final = frozenset({"0.0.0.0", "::", "[::]"})


@dataclass(frozen=True, kw_only=True)
class ServerConfig(
    ModelSettings,
    ModelControlSettings,
    CacheSettings,
    GrpcSettings,
    TlsSettings,
    AccessSettings,
    LimitSettings,
    SharedMemorySettings,
    MetricsSettings,
    DeviceSettings,
    LifeSettings,
    LogSettings,
    TimelineSettings,
):
    """Every setting, checked when made.

    Raises:
        ConfigError: Names the flag, what came, what was expected and how to mend it.
    """

    def __post_init__(self) -> None:
        """Check each value, then those that depend on each other."""
        for entry in OPTIONS:
            value = getattr(self, entry.name)
            if value is not None:
                object.__setattr__(self, entry.name, entry.read(value))
        if not self.metrics_address:
            object.__setattr__(self, "metrics_address", self.grpc_address)
        for error in (
            *self._path_faults(),
            *self._tls_faults(),
            *self._native_faults(),
            *self._other_faults(),
        ):
            raise error
        self._fill_in_grpcio_defaults()

    def _fill_in_grpcio_defaults(self) -> None:
        """Set what is on by default, but not to be had from the other transport."""
        is_grpcio = self.transport == "grpcio"
        if self.grpc_max_connection_age_ms is None:
            age_ms = DEFAULT_CONNECTION_AGE_MS if is_grpcio else 0
            object.__setattr__(self, "grpc_max_connection_age_ms", age_ms)
        if self.grpc_max_connections is None and is_grpcio:
            object.__setattr__(self, "grpc_max_connections", DEFAULT_CONNECTIONS)

    @property
    def uses_tls(self) -> bool:
        """True when the gRPC service is encrypted, with clients' certificates or without."""
        return self.grpc_use_ssl or self.grpc_use_ssl_mutual

    def _path_faults(self) -> Iterator[ConfigError]:
        for path in self.model_repository:
            if not path.is_dir():
                reason = f"got {str(path)!r}, expected a folder that exists"
                yield _error("model_repository", reason, "name the folder that holds the models")
        for path in self.model_files:
            if not path.is_file():
                reason = f"got {str(path)!r}, expected a file that exists"
                fix = "a whole folder of models is given with --model-repository"
                yield ConfigError(f"{reason}; {fix}", field="MODEL_FILE")
        for name in (*_TLS_FILES, "grpc_auth_token_file"):
            path = getattr(self, name)
            if path is not None and not path.is_file():
                yield _error(name, f"got {str(path)!r}, expected a file that exists", "name one")
        if self.timeline is not None and not self.timeline.absolute().parent.is_dir():
            reason = f"got {str(self.timeline)!r}, expected a file in a folder that exists"
            yield _error("timeline", reason, "make the folder first")

    def _tls_faults(self) -> Iterator[ConfigError]:
        needed = ["grpc_server_cert", "grpc_server_key"] if self.uses_tls else []
        if self.grpc_use_ssl_mutual:
            needed.append("grpc_root_cert")
        for name in needed:
            if getattr(self, name) is None:
                reason = "missing, but TLS is switched on"
                yield _error(name, reason, "name the PEM file, or leave out --grpc-use-ssl")
        for name in _TLS_FILES:
            if getattr(self, name) is not None and not self.uses_tls:
                reason = "given, but TLS is switched off: clients would be served unencrypted"
                yield _error(name, reason, "add --grpc-use-ssl, or leave the file out")
        if self.transport == "native" and self.uses_tls:
            reason = "got 'native' together with TLS, which that transport does not have"
            yield _error("transport", reason, "use --transport=grpcio, or end TLS before headrace")

    def _native_faults(self) -> Iterator[ConfigError]:
        if self.transport != "native":
            return
        for name, what, none in (
            ("grpc_max_connection_age_ms", "a connection age", 0),
            ("grpc_max_connections", "a limit on connections", None),
            ("grpc_infer_response_compression_level", "compressed replies", "none"),
        ):
            if getattr(self, name) not in (none, None):
                reason = f"got 'native' together with {what}, which that transport lacks"
                fix = f"use --transport=grpcio, or leave out {_BY_NAME[name].flag}"
                yield _error("transport", reason, fix)

    def _other_faults(self) -> Iterator[ConfigError]:
        for group in self.repeated_groups():
            reason = f"got {group!r} more than once"
            yield _error("grpc_restricted_protocol", reason, "restrict each protocol once")
        for name, reason, fix in (*self.control_faults(), *self.shared_memory_faults()):
            yield _error(name, reason, fix)
        if not self.grpc_address:
            yield _error("grpc_address", "got '', expected an address", "0.0.0.0 means all of them")
        addresses = {self.grpc_address, self.metrics_address}
        if (
            self.allow_metrics
            and self.grpc_port == self.metrics_port != 0
            and (len(addresses) == 1 or addresses & _ANY_ADDRESS)
        ):
            reason = f"got {self.metrics_port}, which is the port of gRPC too"
            yield _error("metrics_port", reason, "choose another, 0 picks a free one")
        if self.max_bytes_in_flight < self.max_request_bytes:
            reason = (
                f"got {self.max_bytes_in_flight}, less than --grpc-max-request-bytes "
                f"({self.max_request_bytes}): a request of that size could never be served"
            )
            yield _error("max_bytes_in_flight", reason, "raise this one or lower that one")
        if self.gpus and self.device == "host":
            reason = f"got {','.join(map(str, self.gpus))} together with --device=host"
            yield _error("gpus", reason, "leave one of them out")
        if len(set(self.gpus)) != len(self.gpus):
            reason = f"got {','.join(map(str, self.gpus))}, expected each GPU once"
            yield _error("gpus", reason, "leave the repeated ones out")


OPTIONS: Final = options_of(ServerConfig)
"""Every setting, group by group, in the order in which people are told of them."""

_BY_NAME: Final = {entry.name: entry for entry in OPTIONS}


def _error(name: str, reason: str, fix: str) -> ConfigError:
    return _BY_NAME[name].error(reason, fix=fix)
