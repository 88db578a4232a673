"""What decides who is served: the warnings at the start, and what the metrics show of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from prometheus_client import generate_latest

from headrace.access import Access, is_loopback, open_access
from headrace.config import ServerConfig
from headrace.errors import ConfigError
from headrace.metrics import Metrics
from headrace_proto.service import METHODS
from helpers.certificates import Certificates

TOKEN = "token-0123456789"
INFER = METHODS["ModelInfer"].path


class Clock:
    """Seconds that pass when they are told to."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "tokens"
    path.write_text(f"me:{TOKEN}\n")
    return path


def opened(clock: Clock | None = None, **settings: Any) -> tuple[Access, Metrics]:
    metrics = Metrics()
    return open_access(ServerConfig(**settings), metrics, clock=clock or Clock()), metrics


def lines(metrics: Metrics, name: str) -> set[str]:
    text = generate_latest(metrics.registry).decode()
    return {line for line in text.splitlines() if line.startswith(name)}


def test_without_settings_everybody_is_served() -> None:
    """Nothing is asked, and nothing is shown."""
    access, metrics = opened()
    assert access == Access(None, None)
    assert not lines(metrics, "headrace_access")


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1", True),
        ("127.1.2.3", True),
        ("::1", True),
        ("[::1]", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("inference.example", False),
    ],
)
def test_tokens_in_the_clear_are_warned_of(
    address: str, expected: bool, token_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Unless only this machine can connect."""
    assert is_loopback(address) is expected
    opened(grpc_address=address, grpc_auth_token_file=token_file)
    assert ("unencrypted" in caplog.text) is not expected


def test_restricted_headers_in_the_clear_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    """They are secrets as well; the warning holds none."""
    opened(grpc_restricted_protocol="health:key=s3cret")
    assert "unencrypted" in caplog.text
    assert "s3cret" not in caplog.text


def test_with_tls_there_is_nothing_to_warn_of(
    tmp_path: Path, token_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """And the metrics show until when it is good."""
    files = Certificates(tmp_path)
    access, metrics = opened(
        grpc_auth_token_file=token_file,
        grpc_use_ssl=True,
        grpc_server_cert=files.server_chain,
        grpc_server_key=files.server_key,
    )
    assert caplog.text == ""
    assert access.certificates is not None
    (line,) = lines(metrics, "headrace_tls_certificate_expiry_timestamp_seconds{")
    assert 'certificate="server"' in line
    assert float(line.split()[-1]) == access.certificates.expires_at("server")
    assert 'headrace_access_reloads_total{result="failed",what="tls"} 0.0' in lines(
        metrics, "headrace_access"
    )


def test_a_renewed_certificate_shows_at_the_next_scrape(tmp_path: Path) -> None:
    """Without a connection in between."""
    files = Certificates(tmp_path)
    _, metrics = opened(
        grpc_use_ssl_mutual=True,
        grpc_server_cert=files.server_chain,
        grpc_server_key=files.server_key,
        grpc_root_cert=files.root,
    )
    before = lines(metrics, "headrace_tls_certificate_expiry_timestamp_seconds{")
    assert len(before) == 2
    files.server_chain.write_bytes(b"broken")
    assert lines(metrics, "headrace_tls_certificate_expiry_timestamp_seconds{") == before
    assert 'headrace_access_reloads_total{result="failed",what="tls"} 1.0' in lines(
        metrics, "headrace_access"
    )


def test_calls_are_counted_by_the_name_of_their_token(token_file: Path) -> None:
    """So that one sees when an old one is no longer used; new names come with a new file."""
    clock = Clock()
    access, metrics = opened(clock, grpc_address="::1", grpc_auth_token_file=token_file)
    gate = access.gate
    assert gate is not None
    assert gate.check(INFER, [("authorization", f"Bearer {TOKEN}")]) is None
    assert gate.check(INFER, []) is not None
    token_file.write_text("you:another-0123456789\n")
    clock.now = 1.0
    assert gate.check(INFER, [("authorization", "Bearer another-0123456789")]) is None
    assert lines(metrics, "headrace_token_calls_total{") == {
        'headrace_token_calls_total{token="me"} 1.0',
        'headrace_token_calls_total{token="you"} 1.0',
    }
    assert 'headrace_access_refused_total{reason="no_token"} 1.0' in lines(
        metrics, "headrace_access_refused"
    )


def test_a_token_file_that_is_wrong_stops_the_start(token_file: Path) -> None:
    """Nobody is served by a server that would refuse everybody."""
    token_file.write_text("")
    with pytest.raises(ConfigError, match=r"holds no token"):
        opened(grpc_auth_token_file=token_file)
