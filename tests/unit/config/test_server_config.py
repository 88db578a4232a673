"""A configuration that exists is right; a wrong value says what came, was expected, and the fix."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest

from headrace.config import OPTIONS, ServerConfig
from headrace.errors import ConfigError


def fault(**values: Any) -> str:
    with pytest.raises(ConfigError) as error:
        ServerConfig(**values)
    return str(error.value)


def test_defaults_are_those_of_triton_where_it_has_them() -> None:
    """Ports, addresses and time-outs are what clients and scrapers of Triton expect."""
    config = ServerConfig()
    assert (config.grpc_address, config.grpc_port, config.metrics_port) == ("0.0.0.0", 8001, 8002)
    assert (config.exit_timeout_s, config.pinned_memory_pool_bytes) == (30.0, 268_435_456)
    assert (config.grpc_keepalive_time_ms, config.grpc_keepalive_timeout_ms) == (7_200_000, 20_000)
    assert config.exit_on_error
    assert config.strict_readiness
    assert config.metrics_interval_ms == 2000


def test_it_is_frozen() -> None:
    """Nothing can change after the checks."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        ServerConfig().grpc_port = 1  # type: ignore[misc]


def test_metrics_listen_where_grpc_does_unless_told_otherwise() -> None:
    """The default of the one address is the other."""
    assert ServerConfig(grpc_address="127.0.0.1").metrics_address == "127.0.0.1"
    config = ServerConfig(grpc_address="127.0.0.1", metrics_address="10.0.0.7")
    assert config.metrics_address == "10.0.0.7"


def test_values_are_brought_into_their_types() -> None:
    """Lists become tuples, integers become seconds, texts become paths."""
    config = ServerConfig(gpus=[0, 1], exit_timeout_s=5, model_files=[])  # type: ignore[arg-type]
    assert config.gpus == (0, 1)
    assert isinstance(config.exit_timeout_s, float)


WRONG: list[tuple[str, Any, str]] = [
    ("grpc_port", 70_000, "an integer from 0 to 65535"),
    ("grpc_port", -1, "an integer from 0 to 65535"),
    ("grpc_port", "http", "an integer"),
    ("grpc_port", True, "an integer"),
    ("grpc_port", 80.5, "an integer"),
    ("grpc_port", "9" * 5000, "an integer"),
    ("metrics_port", 65_536, "an integer from 0 to 65535"),
    ("max_queue_size", 0, "unbounded queue is not offered"),
    ("max_request_bytes", 2**31, "2147483647"),
    ("max_request_bytes", 10, "from 1024"),
    ("max_tensors", 0, "from 1"),
    ("grpc_io_threads", 0, "from 1"),
    ("exit_timeout_s", -1.0, "a number from 0"),
    ("exit_timeout_s", math.nan, "a number from 0"),
    ("exit_timeout_s", math.inf, "a number from 0"),
    ("lame_duck_s", "soon", "a number from 0"),
    ("transport", "http3", "one of grpcio, native"),
    ("device", "tpu", "one of auto, host, cudart"),
    ("poller_wait", 3, "one of auto, spin, nap, predict, notify"),
    ("overload_status", "INTERNAL", "one of UNAVAILABLE, RESOURCE_EXHAUSTED"),
    ("log_format", "xml", "one of default, json"),
    ("allow_metrics", "maybe", "true or false"),
    ("exit_on_error", 2, "true or false"),
    ("server_id", "two\nlines", "without control characters"),
    ("grpc_address", "", "an address"),
    ("gpus", (0, -1), "from 0"),
    ("gpus", (1, 1), "each GPU once"),
    ("grpc_server_cert", "", "a path"),
    ("grpc_server_cert", "/no/such.pem", "a file that exists"),
    ("model_repository", ("/no/such",), "a folder that exists"),
]


@pytest.mark.parametrize(("name", "value", "expected"), WRONG)
def test_a_wrong_value_names_flag_value_and_expectation(
    name: str, value: Any, expected: str
) -> None:
    """The text begins with the flag, shows what came, and says what was expected and the fix."""
    text = fault(**{name: value})
    flag = next(option.flag for option in OPTIONS if option.name == name)
    assert text.startswith(f"{flag}: got ")
    assert expected in text
    assert "; " in text


def test_a_missing_model_file_names_the_other_way() -> None:
    """A folder given as a file is told of --model-repository."""
    text = fault(model_files=("/tmp",))
    assert text.startswith("MODEL_FILE: got '/tmp'")
    assert "--model-repository" in text


@pytest.fixture
def pem(tmp_path: Path) -> Path:
    path = tmp_path / "some.pem"
    path.write_text("-----BEGIN CERTIFICATE-----\n")
    return path


def test_tls_needs_its_files(pem: Path) -> None:
    """TLS without a key, or mutual TLS without a root, is refused under the missing flag."""
    assert fault(grpc_use_ssl=True, grpc_server_cert=pem).startswith("--grpc-server-key: missing")
    text = fault(grpc_use_ssl_mutual=True, grpc_server_cert=pem, grpc_server_key=pem)
    assert text.startswith("--grpc-root-cert: missing")
    config = ServerConfig(
        grpc_use_ssl_mutual=True, grpc_server_cert=pem, grpc_server_key=pem, grpc_root_cert=pem
    )
    assert config.uses_tls
    assert not ServerConfig().uses_tls


def test_certificates_without_tls_are_refused(pem: Path) -> None:
    """Who names a certificate must not be served in the clear."""
    text = fault(grpc_server_cert=pem, grpc_server_key=pem)
    assert text.startswith("--grpc-server-cert: given")
    assert "--grpc-use-ssl" in text


def test_the_native_transport_is_refused_with_what_it_lacks(pem: Path) -> None:
    """TLS and connection age need grpcio, and the text says so."""
    files = {"grpc_server_cert": pem, "grpc_server_key": pem}
    text = fault(transport="native", grpc_use_ssl=True, **files)
    assert text.startswith("--transport: got 'native'")
    assert "--transport=grpcio" in text
    text = fault(transport="native", grpc_max_connection_age_ms=1000)
    assert text.startswith("--transport: got 'native'")
    assert "--grpc-max-connection-age" in text
    assert ServerConfig(transport="native").transport == "native"


def test_one_port_cannot_serve_two_things() -> None:
    """Equal ports are refused where the addresses meet, and only there."""
    assert fault(grpc_port=9000, metrics_port=9000).startswith("--metrics-port: got 9000")
    assert fault(grpc_port=9000, metrics_port=9000, metrics_address="127.0.0.1").startswith(
        "--metrics-port"
    )
    ServerConfig(grpc_port=0, metrics_port=0)
    ServerConfig(grpc_port=9000, metrics_port=9000, allow_metrics=False)
    ServerConfig(
        grpc_port=9000, metrics_port=9000, grpc_address="127.0.0.1", metrics_address="127.0.0.2"
    )


def test_the_largest_request_must_fit_in_flight() -> None:
    """A limit that makes another one unreachable is refused."""
    text = fault(max_request_bytes=2**21, max_bytes_in_flight=2**20)
    assert text.startswith("--max-bytes-in-flight: got 1048576")
    assert "--grpc-max-request-bytes" in text


def test_gpus_without_the_gpu_device_are_refused() -> None:
    """Naming a GPU and the CPU at once is a contradiction, not a preference."""
    assert fault(device="host", gpus=(0,)).startswith("--gpus: got 0")


def test_what_belongs_to_explicit_mode_needs_it() -> None:
    """Nothing is passed over in silence, and '*' stands for every model."""
    for setting in ({"load_model": ("m",)}, {"allow_model_uploads": True}):
        for mode in ("none", "poll"):
            text = fault(model_control_mode=mode, **setting)
            assert text.startswith("--load-model: got" if "load_model" in setting else "--allow-mo")
            assert f"--model-control-mode={mode}" in text
        ServerConfig(model_control_mode="explicit", **setting)
    text = fault(model_control_mode="explicit", load_model=("*", "m"))
    assert text.startswith("--load-model: got '*,m'")
    ServerConfig(model_control_mode="explicit", load_model=("*",))


def test_the_largest_message_of_grpc_is_reachable() -> None:
    """Two gibibytes less one byte can be allowed both ways."""
    most = 2**31 - 1
    config = ServerConfig(
        max_request_bytes=most, max_response_bytes=most, max_bytes_in_flight=2**33
    )
    assert config.max_request_bytes == config.max_response_bytes == most
