"""What a client is told once: addresses, bounds, load balancing, retries, certificates."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from headrace_client import InvalidInput, Tls
from headrace_client.settings import Settings


def service_config(settings: Settings) -> dict[str, Any]:
    """Return the service config that gRPC is given."""
    config: dict[str, Any] = json.loads(str(dict(settings.options())["grpc.service_config"]))
    return config


@pytest.mark.parametrize("url", ["", "http://localhost:8001", "https://h:1", "grpc://h:1"])
def test_urls_that_grpc_would_misread(url: str) -> None:
    """A web address, or nothing, is refused with an example of what is expected."""
    with pytest.raises(InvalidInput, match="expected host:port, such as localhost:8001"):
        Settings(url)


@pytest.mark.parametrize(
    ("url", "asked", "expected"),
    [
        ("localhost:8001", None, "pick_first"),
        ("dns:///headrace.example:8001", None, "round_robin"),
        ("dns:///headrace.example:8001", "pick_first", "pick_first"),
        ("ipv4:127.0.0.1:1,127.0.0.1:2", "round_robin", "round_robin"),
    ],
)
def test_load_balancing_follows_the_address(url: str, asked: str | None, expected: str) -> None:
    """Calls go round over all addresses of a DNS name, and to one server otherwise."""
    config = service_config(Settings(url, load_balancing=asked))
    assert config["loadBalancingConfig"] == [{expected: {}}]


def test_unknown_load_balancing() -> None:
    """Anything but gRPC's two policies is refused."""
    with pytest.raises(InvalidInput, match="'weighted'; expected 'pick_first', 'round_robin'"):
        Settings("localhost:1", load_balancing="weighted")


def test_only_reads_are_retried() -> None:
    """No retry policy touches an inference or a probe."""
    (policy,) = service_config(Settings("localhost:1"))["methodConfig"]
    names = {entry["method"] for entry in policy["name"]}
    assert names == {
        "ServerMetadata",
        "ModelMetadata",
        "ModelConfig",
        "ModelStatistics",
        "RepositoryIndex",
    }
    assert policy["retryPolicy"]["retryableStatusCodes"] == ["UNAVAILABLE"]


def test_messages_are_unlimited_and_the_callers_options_win() -> None:
    """The limit of 4 MiB is lifted; later options override earlier ones."""
    settings = Settings("localhost:1", channel_options=[("grpc.max_send_message_length", 5)])
    options = settings.options()
    assert dict(options)["grpc.max_receive_message_length"] == -1
    assert options[-1] == ("grpc.max_send_message_length", 5)


@pytest.mark.parametrize(
    ("own", "default", "expected"),
    [(None, 60.0, 60.0), (2.5, 60.0, 2.5), (None, None, None), (math.inf, 60.0, None)],
)
def test_deadline(own: float | None, default: float | None, expected: float | None) -> None:
    """A call's own bound comes before the client's; infinity is none."""
    assert Settings("localhost:1", timeout_s=default).deadline_s(own) == expected


@pytest.mark.parametrize("timeout_s", [0, -1.0, math.nan])
def test_deadlines_lie_ahead(timeout_s: float) -> None:
    """A bound of zero or less is a mistake, for the client as for a call."""
    with pytest.raises(InvalidInput, match="expected more than 0"):
        Settings("localhost:1", timeout_s=timeout_s)
    with pytest.raises(InvalidInput, match="expected more than 0"):
        Settings("localhost:1").deadline_s(timeout_s)


def test_half_a_client_certificate() -> None:
    """Mutual TLS needs the certificate and its key."""
    with pytest.raises(InvalidInput, match="both client_cert and client_key"):
        Tls(client_cert="client.pem")


def test_missing_certificate_file(tmp_path: Path) -> None:
    """A file that cannot be read is named."""
    with pytest.raises(InvalidInput, match=r"absent\.pem'?: No such file"):
        Tls(root_cert=tmp_path / "absent.pem").credentials()


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("Bad Key", "x", "expected lower case"),
        ("x", b"raw", "'x' is a bytes"),
        ("x-bin", "text", "'x-bin' is a str"),
        ("x", "two\r\nlines: 1", "not printable ASCII"),
        ("x", "ö", "not printable ASCII"),
    ],
)
def test_metadata_that_http2_cannot_carry(key: str, value: str | bytes, text: str) -> None:
    """A header that gRPC would refuse at the first call is refused at once."""
    with pytest.raises(InvalidInput, match=text):
        Settings("localhost:1", metadata=((key, value),))
