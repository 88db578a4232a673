"""Certificates follow their files: renewed, swapped as Kubernetes does, half written, broken."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from headrace.errors import ConfigError
from headrace.rpc.tls import Certificates, TlsFiles
from helpers.certificates import Certificates as Authority
from helpers.certificates import MountedSecret

SOON, LATER = datetime(2101, 1, 1, tzinfo=UTC), datetime(2102, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("pem"))


def pair(authority: Authority, expires: datetime) -> dict[str, bytes]:
    """What a Secret of type kubernetes.io/tls holds."""
    chain, key = authority.issue("pair", "localhost", expires=expires)
    return {
        "tls.crt": chain.read_bytes(),
        "tls.key": key.read_bytes(),
        "ca.crt": authority.root.read_bytes(),
    }


@pytest.fixture
def secret(authority: Authority, tmp_path: Path) -> MountedSecret:
    return MountedSecret(tmp_path, pair(authority, SOON))


def opened(secret: MountedSecret) -> Certificates:
    return Certificates(
        TlsFiles(secret.path("tls.crt"), secret.path("tls.key"), secret.path("ca.crt"))
    )


def test_files_that_stay_are_handed_out_once(secret: MountedSecret) -> None:
    """GRPC has them from the start."""
    certificates = opened(secret)
    assert certificates.fetch() is None
    assert certificates.kinds == ("server", "root")
    assert certificates.expires_at("server") == SOON.timestamp()


def test_a_swapped_secret_is_taken(secret: MountedSecret, authority: Authority) -> None:
    """Handed out at the next handshake, once, also when a scrape has seen it before."""
    certificates = opened(secret)
    secret.swap(pair(authority, LATER))
    certificates.refresh()
    assert certificates.expires_at("server") == LATER.timestamp()
    assert certificates.fetch() is not None
    assert certificates.fetch() is None
    assert certificates.num_reloads == {"ok": 1, "failed": 0}


BROKEN = {
    "nothing in it": {"tls.crt": b""},
    "no certificate": {"tls.crt": b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"},
    "no key": {"tls.key": b"none"},
    "no root": {"ca.crt": b"none"},
}


@pytest.mark.parametrize("files", BROKEN.values(), ids=BROKEN)
def test_broken_files_leave_the_former_in_use(
    files: dict[str, bytes],
    secret: MountedSecret,
    authority: Authority,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One error in the log, however many handshakes follow; a right file mends it."""
    certificates = opened(secret)
    secret.swap(pair(authority, LATER) | files)
    assert [certificates.fetch() for _ in range(3)] == [None] * 3
    assert certificates.expires_at("server") == SOON.timestamp()
    (record,) = caplog.records
    assert record.levelname == "ERROR"
    assert str(secret.folder) in record.getMessage()
    secret.swap(pair(authority, LATER))
    assert certificates.fetch() is not None
    assert certificates.num_reloads == {"ok": 1, "failed": 1}


def test_a_pair_that_is_written_one_after_the_other(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """In between the certificate has another key: not taken, until the key is there, too."""
    old, new = pair(authority, SOON), pair(authority, LATER)
    chain, key = tmp_path / "chain.pem", tmp_path / "key.pem"
    chain.write_bytes(old["tls.crt"])
    key.write_bytes(old["tls.key"])
    certificates = Certificates(TlsFiles(chain, key))
    chain.write_bytes(new["tls.crt"])
    assert certificates.fetch() is None
    assert "KEY_VALUES_MISMATCH" in caplog.text
    key.write_bytes(new["tls.key"])
    assert certificates.fetch() is not None
    assert certificates.expires_at("server") == LATER.timestamp()


def test_files_that_are_gone(secret: MountedSecret, caplog: pytest.LogCaptureFixture) -> None:
    """The server goes on with what it has."""
    certificates = opened(secret)
    (secret.folder / "..data").unlink()
    assert certificates.fetch() is None
    assert "No such file" in caplog.text
    assert certificates.expires_at("server") == SOON.timestamp()


def test_at_the_start_the_files_must_be_right(secret: MountedSecret, authority: Authority) -> None:
    """The flag is named, not the port."""
    secret.swap(pair(authority, SOON) | {"tls.key": b"none"})
    with pytest.raises(ConfigError, match=r"--grpc-server-cert: .*tls\.crt and .*tls\.key are not"):
        opened(secret)
    secret.swap(pair(authority, SOON) | {"ca.crt": b"none"})
    with pytest.raises(ConfigError, match=r"--grpc-root-cert: .*ca\.crt holds no certificates"):
        opened(secret)


def test_an_expired_certificate_is_told(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is served all the same: clients decide, and clocks may be wrong."""
    chain, key = authority.issue("old", "localhost", expires=datetime(2001, 1, 1, tzinfo=UTC))
    Certificates(TlsFiles(chain, key))
    assert "has expired" in caplog.text
    assert "2001-01-01" in caplog.text
