"""How the clients reach servers: over TLS, and round several of them behind one name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import grpc
import numpy as np
import pytest
import trustme

from headrace_client import ServerUnavailable, Tls
from helpers.dns_server import dns_server
from helpers.echo_server import EchoServer, echo_server
from helpers.either_client import KINDS, open_client

ARRAY = np.zeros(3, np.float32)


class Certificates:
    """An authority, a server's certificate for localhost, and a client's; files under `folder`."""

    def __init__(self, folder: Path) -> None:
        self.authority = trustme.CA()
        self.server = self.authority.issue_cert("localhost")
        client = self.authority.issue_cert("client@headrace.example")
        self.root, self.cert, self.key = (folder / name for name in ("root", "cert", "key"))
        self.authority.cert_pem.write_to_path(self.root)
        client.private_key_pem.write_to_path(self.key)
        client.cert_chain_pems[0].write_to_path(self.cert)

    def for_server(self, *, mutual: bool) -> grpc.ServerCredentials:
        pair = (self.server.private_key_pem.bytes(), self.server.cert_chain_pems[0].bytes())
        root = self.authority.cert_pem.bytes() if mutual else None
        return grpc.ssl_server_credentials([pair], root, require_client_auth=mutual)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(params=[False, True], ids=["tls", "mutual"])
def secured(request: pytest.FixtureRequest, certificates: Certificates) -> Iterator[EchoServer]:
    with echo_server("localhost:0", certificates.for_server(mutual=request.param)) as echo:
        yield echo


@pytest.mark.parametrize("kind", KINDS)
def test_encrypted(kind: str, secured: EchoServer, certificates: Certificates) -> None:
    """With the right authority, and a certificate of its own where asked, a client gets through."""
    tls = Tls(certificates.root, client_cert=certificates.cert, client_key=certificates.key)
    with open_client(kind, secured.url, tls=tls) as client:
        assert np.array_equal(client.infer("echo", {"x": ARRAY})["x"], ARRAY)


@pytest.mark.parametrize("kind", KINDS)
def test_a_stranger_is_not_trusted(kind: str, secured: EchoServer, tmp_path: Path) -> None:
    """A server whose authority the client does not know gets no request."""
    stranger = Certificates(tmp_path)
    tls = Tls(stranger.root)
    with open_client(kind, secured.url, tls=tls) as client, pytest.raises(ServerUnavailable):
        client.infer("echo", {"x": ARRAY})
    assert not secured.requests


def test_a_server_name_of_its_own(certificates: Certificates) -> None:
    """An address that the certificate does not bear works under the name that it does."""
    with echo_server("127.0.0.1:0", certificates.for_server(mutual=False)) as echo:
        with open_client("sync", echo.url, tls=Tls(certificates.root)) as client:
            assert not client.is_live()
        named = Tls(certificates.root, server_name="localhost")
        with open_client("sync", echo.url, tls=named) as client:
            assert client.is_live()


@pytest.mark.parametrize("kind", KINDS)
def test_round_robin_over_the_addresses_of_a_name(kind: str) -> None:
    """Behind one `dns:///` name, every address gets its share of the calls."""
    with echo_server("127.0.0.1:0") as first:
        port = first.url.rpartition(":")[2]
        with (
            echo_server(f"127.0.0.2:{port}") as second,
            dns_server(["127.0.0.1", "127.0.0.2"]) as dns,
        ):
            url = f"dns://{dns}/headrace.example:{port}"
            with open_client(kind, url) as client:
                while not (first.calls and second.calls):
                    client.infer("echo", {"x": ARRAY})  # until both connections stand
                before = first.calls["ModelInfer"], second.calls["ModelInfer"]
                for _ in range(20):
                    client.infer("echo", {"x": ARRAY})
    assert first.calls["ModelInfer"] - before[0] == 10
    assert second.calls["ModelInfer"] - before[1] == 10
