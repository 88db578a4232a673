"""Certificates change under a running server: new connections see it, open ones stay."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import grpc
import pytest
from cryptography import x509

from helpers import onnx_models
from helpers.certificates import Certificates, MountedSecret
from helpers.rpc_client import RpcClient, refused
from helpers.server import Server, serving

SERVING = 1
EXPIRY = "headrace_tls_certificate_expiry_timestamp_seconds"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return onnx_models.save(onnx_models.adds(1), tmp_path_factory.mktemp("m") / "adds.onnx")


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("first"))


@pytest.fixture(scope="module")
def second(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Another authority."""
    return Certificates(tmp_path_factory.mktemp("second"))


def files(authority: Certificates, year: int = 2101) -> dict[str, bytes]:
    """A new pair of an authority, as a Secret holds it."""
    expires = datetime(year, 1, 1, tzinfo=UTC)
    chain, key = authority.issue(f"pair-{year}", "localhost", "127.0.0.1", expires=expires)
    return {
        "tls.crt": chain.read_bytes(),
        "tls.key": key.read_bytes(),
        "ca.crt": authority.root.read_bytes(),
    }


@contextmanager
def served(model: Path, secret: MountedSecret, *switches: str) -> Iterator[Server]:
    flags: list[str | Path] = [
        *(switches or ("--grpc-use-ssl",)),
        "--grpc-server-cert",
        secret.path("tls.crt"),
        "--grpc-server-key",
        secret.path("tls.key"),
        "--grpc-root-cert",
        secret.path("ca.crt"),
    ]
    with serving(model, *flags) as server:
        yield server


def shown_year(server: Server) -> int:
    """When the certificate ends that a new connection is shown."""
    host, port = server.address.rsplit(":", 1)
    pem = ssl.get_server_certificate((host, int(port)), timeout=20)
    return x509.load_pem_x509_certificate(pem.encode()).not_valid_after_utc.year


def is_served(server: Server, credentials: grpc.ChannelCredentials) -> bool:
    with RpcClient(server.address, credentials) as client:
        try:
            return client.check() == SERVING
        except grpc.RpcError as error:
            return refused(error)[0] is not grpc.StatusCode.UNAVAILABLE


def test_a_swapped_secret_is_shown_to_new_connections(
    model: Path, first: Certificates, tmp_path: Path
) -> None:
    """As Kubernetes swaps it; a connection that is open stays and is served."""
    secret = MountedSecret(tmp_path, files(first))
    with served(model, secret) as server, _client(server, first) as old:
        assert old.check() == SERVING
        assert shown_year(server) == 2101
        secret.swap(files(first, 2102))
        assert shown_year(server) == 2102
        assert old.check() == SERVING
        assert is_served(server, first.credentials(with_client=False))
        assert server.metrics()["headrace_access_reloads_total"] == 1
        assert "new TLS certificates are in use" in server.output()


def test_a_broken_secret_leaves_the_former_in_use(
    model: Path, first: Certificates, tmp_path: Path
) -> None:
    """The log tells it once, with the file; the next right one mends it."""
    secret = MountedSecret(tmp_path, files(first))
    with served(model, secret) as server:
        broken = files(first, 2102) | {"tls.key": files(first, 2103)["tls.key"]}
        secret.swap(broken)
        for _ in range(3):
            assert shown_year(server) == 2101
        assert is_served(server, first.credentials(with_client=False))
        told = [line for line in server.output().splitlines() if "cannot be used" in line]
        assert len(told) == 1
        assert "ERROR" in told[0]
        assert "tls.crt" in told[0]
        assert "KEY_VALUES_MISMATCH" in told[0]
        secret.swap(files(first, 2104))
        assert shown_year(server) == 2104


def test_authorities_of_clients_change_as_well(
    model: Path, first: Certificates, second: Certificates, tmp_path: Path
) -> None:
    """After the swap who has a certificate of the former authority is refused."""
    secret = MountedSecret(tmp_path, files(first))

    def trusting(server_root: Certificates, client: Certificates) -> grpc.ChannelCredentials:
        return grpc.ssl_channel_credentials(
            server_root.root.read_bytes(),
            client.client_key.read_bytes(),
            client.client_chain.read_bytes(),
        )

    with served(model, secret, "--grpc-use-ssl-mutual") as server:
        assert is_served(server, trusting(first, first))
        assert not is_served(server, trusting(first, second))
        assert not is_served(server, first.credentials(with_client=False))
        secret.swap(files(first, 2102) | {"ca.crt": second.root.read_bytes()})
        assert is_served(server, trusting(first, second))
        assert not is_served(server, trusting(first, first))
        assert not is_served(server, first.credentials(with_client=False))


def test_the_metric_tells_when_they_end(model: Path, first: Certificates, tmp_path: Path) -> None:
    """Unix seconds, of the files as they are now, without a connection in between."""
    secret = MountedSecret(tmp_path, files(first))
    with served(model, secret) as server:
        before = server.metrics()[EXPIRY]  # server and root together
        secret.swap(files(first, 2102))
        later = datetime(2102, 1, 1, tzinfo=UTC) - datetime(2101, 1, 1, tzinfo=UTC)
        assert server.metrics()[EXPIRY] - before == later.total_seconds()


def _client(server: Server, authority: Certificates) -> RpcClient:
    return RpcClient(server.address, authority.credentials(with_client=False))
