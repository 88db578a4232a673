"""Server credentials out of PEM files, read again when the files change.

gRPC asks before each handshake. Files that are wrong leave the former certificates in use, and the
log says so once: a new certificate and its key are often written one after the other.
"""

from __future__ import annotations

import logging
import ssl
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import grpc

from headrace.errors import ConfigError
from headrace.rpc.expiry import expires_at
from headrace.rpc.watched import Fingerprint, fingerprint

log = logging.getLogger(__name__)

_NUM_LOOKS: Final = 3
"""At files that change while they are read; more often means that they are being written."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Where the certificates lie.

    Attributes:
        certificate: The server's certificate chain.
        key: Its private key, not encrypted.
        root: Certificates that clients' are checked with.
        wants_client: Refuse clients without a certificate.
    """

    certificate: Path
    key: Path
    root: Path | None = None
    wants_client: bool = False

    def look(self) -> Fingerprint:
        """Return what differs when one of the files has changed."""
        return fingerprint(path for path in (self.certificate, self.key, self.root) if path)


@dataclass(frozen=True, slots=True)
class _Material:
    """What the files held, and until when it is good."""

    certificate: bytes
    key: bytes
    root: bytes | None
    expires_at: dict[str, float]  # of "server" and "root": seconds since 1970

    def configuration(self) -> grpc.ServerCertificateConfiguration:
        return grpc.ssl_server_certificate_configuration(
            [(self.key, self.certificate)], root_certificates=self.root
        )


class Certificates:
    """The certificates in use; any thread may call any method."""

    def __init__(self, files: TlsFiles) -> None:
        """Read the files.

        Raises:
            ConfigError: Names the flag, the file and what is wrong with it.
        """
        self._files = files
        self._lock = threading.Lock()
        self._seen = files.look()
        self._material = self._handed_out = _read(files)
        self.num_reloads = {"ok": 0, "failed": 0}
        self._warn_if_expired()

    def credentials(self) -> grpc.ServerCredentials:
        """Return gRPC's credentials, which follow the files."""
        return grpc.dynamic_ssl_server_credentials(
            self._handed_out.configuration(),
            self.fetch,  # type: ignore[arg-type]  # None is "no change"
            require_client_authentication=self._files.wants_client,
        )

    def fetch(self) -> grpc.ServerCertificateConfiguration | None:
        """Return certificates that gRPC does not have yet, None when there are none."""
        self.refresh()
        with self._lock:
            if self._material is self._handed_out:
                return None
            self._handed_out = self._material
            return self._material.configuration()

    def refresh(self) -> None:
        """Look at the files, and take them when they have changed and are right."""
        with self._lock:
            seen = self._files.look()
            if seen == self._seen:
                return
            self._seen = seen
            try:
                self._material = _read(self._files)
            except ConfigError as error:
                self.num_reloads["failed"] += 1
                log.error("new TLS files cannot be used, so the former stay in use: %s", error)
                return
            self.num_reloads["ok"] += 1
            log.info("new TLS certificates are in use: %s", self._ends())
            self._warn_if_expired()

    def expires_at(self, which: str) -> float:
        """Return when the first certificate of "server" or "root" ends, seconds since 1970."""
        return self._material.expires_at[which]

    @property
    def kinds(self) -> tuple[str, ...]:
        """Of which there are dates: "server", and "root" where clients are checked."""
        return tuple(self._material.expires_at)

    def _ends(self) -> str:
        ends = self._material.expires_at.items()
        return ", ".join(
            f"{which}'s end {datetime.fromtimestamp(at, UTC):%F %T}" for which, at in ends
        )

    def _warn_if_expired(self) -> None:
        if self.expires_at("server") < time.time():
            log.warning("the TLS certificate has expired, clients will refuse it: %s", self._ends())


def _read(files: TlsFiles) -> _Material:
    for _ in range(_NUM_LOOKS):
        seen = files.look()
        material = _read_once(files)
        if files.look() == seen:  # else what was checked may not be what was read
            return material
    raise ConfigError(f"{files.certificate} changes while it is read", field="--grpc-server-cert")


def _read_once(files: TlsFiles) -> _Material:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(files.certificate, files.key, password=lambda: b"")
        chain, key = files.certificate.read_bytes(), files.key.read_bytes()
        expiry = {"server": expires_at(chain)}
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{files.certificate} and {files.key} are not a certificate chain and its unencrypted "
            f"private key in PEM: {_reason(error)}",
            field="--grpc-server-cert",
        ) from error
    root = None
    if files.root is not None:
        try:
            context.load_verify_locations(files.root)
            root = files.root.read_bytes()
            expiry["root"] = expires_at(root)
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"{files.root} holds no certificates in PEM: {_reason(error)}",
                field="--grpc-root-cert",
            ) from error
    return _Material(chain, key, root, expiry)


def _reason(error: Exception) -> str:
    """Return OpenSSL's word for it, such as KEY_VALUES_MISMATCH, or the system's."""
    return getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
