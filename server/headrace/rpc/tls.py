"""Server credentials out of PEM files, each looked at first: gRPC would only say "cannot bind"."""

from __future__ import annotations

import ssl
from pathlib import Path

import grpc

from headrace.errors import ConfigError


def server_credentials(
    certificate: Path, key: Path, root: Path | None, *, wants_client: bool
) -> grpc.ServerCredentials:
    """Return gRPC's credentials.

    Args:
        certificate: The server's certificate chain.
        key: Its private key, not encrypted.
        root: Certificates that clients' are checked with.
        wants_client: Refuse clients without a certificate.

    Raises:
        ConfigError: Names the flag, the file and what is wrong with it.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key, password=lambda: b"")
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{certificate} and {key} are not a certificate chain and its unencrypted private key "
            f"in PEM: {_reason(error)}",
            field="--grpc-server-cert",
        ) from error
    if root is not None:
        try:
            context.load_verify_locations(root)
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"{root} holds no certificates in PEM: {_reason(error)}", field="--grpc-root-cert"
            ) from error
    return grpc.ssl_server_credentials(
        [(key.read_bytes(), certificate.read_bytes())],
        root_certificates=None if root is None else root.read_bytes(),
        require_client_auth=wants_client,
    )


def _reason(error: Exception) -> str:
    """Return OpenSSL's word for it, such as KEY_VALUES_MISMATCH, or the system's."""
    return getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
