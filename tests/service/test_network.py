"""Where and how the port is opened: TLS, addresses, ports that are taken."""

from __future__ import annotations

import ssl
from pathlib import Path

import grpc
import pytest
import trustme
from grpc_health.v1 import health_pb2

from helpers import onnx_models
from helpers.certificates import Certificates, tls_flags
from helpers.rpc_client import RpcClient, refused
from helpers.server import Server, serving, start

SERVING = health_pb2.HealthCheckResponse.SERVING


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One small model file."""
    return onnx_models.save(onnx_models.adds(1), tmp_path_factory.mktemp("m") / "adds.onnx")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("pem"))


def ended(*arguments: str | Path) -> tuple[int, str]:
    """A server that cannot start: its exit code and what it said."""
    server = start(*arguments)
    try:
        code = server.process.wait(20)
        server._reader.join(5)
    finally:
        if server.process.poll() is None:
            server.kill()
    assert "Traceback" not in server.output()
    return code, server.output()


def is_served(server: Server, credentials: grpc.ChannelCredentials | None = None) -> bool:
    with RpcClient(server.address, credentials) as client:
        try:
            return client.check() == SERVING
        except grpc.RpcError as error:
            return refused(error)[0] is not grpc.StatusCode.UNAVAILABLE


def test_tls(model: Path, certificates: Certificates) -> None:
    """Who trusts the authority is served; plain text and other authorities are not."""
    with serving(model, *tls_flags(certificates)) as server:
        assert "(grpcio TLS)" in server.output()
        assert is_served(server, certificates.credentials(with_client=False))
        assert not is_served(server)
        stranger = grpc.ssl_channel_credentials(trustme.CA().cert_pem.bytes())
        assert not is_served(server, stranger)


def test_mutual_tls(model: Path, certificates: Certificates) -> None:
    """Only clients with a certificate of the root are served."""
    flags = tls_flags(certificates, "--grpc-use-ssl-mutual")
    with serving(model, *flags, "--grpc-root-cert", certificates.root) as server:
        assert is_served(server, certificates.credentials(with_client=True))
        assert not is_served(server, certificates.credentials(with_client=False))
        others = trustme.CA().issue_cert("someone")
        unknown = grpc.ssl_channel_credentials(
            certificates.root.read_bytes(),
            others.private_key_pem.bytes(),
            others.cert_chain_pems[0].bytes(),
        )
        assert not is_served(server, unknown)


def test_the_native_transport_has_no_tls(model: Path, certificates: Certificates) -> None:
    """It is refused with the way out, not served in the clear."""
    code, output = ended(model, "--transport=native", *tls_flags(certificates))
    assert code == 2
    assert "--transport" in output
    assert "use --transport=grpcio, or end TLS before headrace" in output


def test_the_native_transport_has_no_connection_age(model: Path) -> None:
    """The same."""
    code, output = ended(model, "--transport=native", "--grpc-max-connection-age=1000")
    assert code == 2
    assert "leave out --grpc-max-connection-age" in output


def test_files_that_hold_something_else(
    model: Path, certificates: Certificates, tmp_path: Path
) -> None:
    """The text names the flag and the file, and does not blame the port."""
    other_chain, _ = certificates.issue("other", "localhost")
    nonsense = tmp_path / "nonsense.pem"
    nonsense.write_text("-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n")
    flags = tls_flags(certificates)
    flags[2] = other_chain
    code, output = ended(model, *flags)
    assert code == 1
    assert f"--grpc-server-cert: {other_chain} and {certificates.server_key} are not" in output
    flags = tls_flags(certificates, "--grpc-use-ssl-mutual")
    code, output = ended(model, *flags, "--grpc-root-cert", nonsense)
    assert code == 1
    assert f"--grpc-root-cert: {nonsense} holds no certificates" in output


@pytest.mark.parametrize(
    ("transport", "address"),
    [("grpcio", "localhost"), ("grpcio", "[::1]"), ("native", "localhost"), ("native", "::1")],
)
def test_addresses(model: Path, transport: str, address: str) -> None:
    """Names and IPv6, with brackets or without; what is printed can be connected to."""
    where = ("--grpc-address", address, "--metrics-address", address)
    with serving(model, "--transport", transport, *where) as server:
        host = server.address.rsplit(":", 1)[0]
        assert host == ("localhost" if address == "localhost" else "[::1]")
        assert is_served(server)
        assert "headrace_slots_busy" in server.metrics()


def test_two_servers_on_one_port(small: Server, transport: str, model: Path) -> None:
    """The second says which port is taken and by which flag it came; the first is not touched."""
    port = small.address.rsplit(":", 1)[1]
    code, output = ended(model, "--transport", transport, "--grpc-port", port)
    assert code == 1
    assert f"--grpc-port: cannot listen on 127.0.0.1:{port}" in output
    assert is_served(small)


def test_certificates_are_what_the_test_says(certificates: Certificates) -> None:
    """The files themselves are right: Python's own TLS takes them."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.server_chain, certificates.server_key)
    context.load_verify_locations(certificates.root)
    assert context.cert_store_stats()["x509_ca"] == 1
