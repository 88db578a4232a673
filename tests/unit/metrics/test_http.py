"""The endpoint of metrics and health: what it answers, and that it opens and closes cleanly."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from prometheus_client.parser import text_string_to_metric_families

from headrace.errors import ConfigError
from headrace.metrics import Metrics
from headrace.metrics_http import _MAX_CONNECTIONS, MetricsServer


class State:
    is_live = True
    is_ready = True


@pytest.fixture
def state() -> State:
    return State()


@pytest.fixture
def server(state: State) -> Iterator[MetricsServer]:
    metrics = Metrics()
    metrics.model("digits", "1")
    server = MetricsServer(
        metrics, is_live=lambda: state.is_live, is_ready=lambda: state.is_ready, port=0
    )
    server.open()
    yield server
    server.close()


def get(server: MetricsServer, path: str, accept: str = "*/*") -> tuple[int, str, bytes]:
    connection = http.client.HTTPConnection(server.address, server.port, timeout=10)
    try:
        connection.request("GET", path, headers={"Accept": accept})
        response = connection.getresponse()
        return response.status, response.headers["Content-Type"], response.read()
    finally:
        connection.close()


def test_metrics_are_served(server: MetricsServer) -> None:
    """A scraper gets text that it can parse, with the model's counters in it."""
    status, content_type, body = get(server, "/metrics")
    assert (status, content_type.partition(";")[0]) == (200, "text/plain")
    names = {family.name for family in text_string_to_metric_families(body.decode())}
    assert "nv_inference_request_success" in names


def test_openmetrics_is_negotiated(server: MetricsServer) -> None:
    """The Accept header of a current Prometheus gets OpenMetrics."""
    accept = "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.5"
    status, content_type, body = get(server, "/metrics", accept)
    assert (status, content_type.partition(";")[0]) == (200, "application/openmetrics-text")
    assert body.endswith(b"# EOF\n")


@pytest.mark.parametrize("probe", ["live", "ready"])
def test_health_follows_its_callable(server: MetricsServer, state: State, probe: str) -> None:
    """200 while true, 503 while false, each probe on its own."""
    assert get(server, f"/v2/health/{probe}")[0] == 200
    setattr(state, f"is_{probe}", False)
    assert get(server, f"/v2/health/{probe}")[0] == 503
    other = "live" if probe == "ready" else "ready"
    assert get(server, f"/v2/health/{other}")[0] == 200


def test_unknown_paths_name_the_known_ones(server: MetricsServer) -> None:
    """A wrong path is told where to go; a query or a trailing slash does not matter."""
    status, _, body = get(server, "/")
    assert status == 404
    assert b"/metrics" in body
    assert b"/v2/health/ready" in body
    assert get(server, "/metrics/?name=x")[0] == 200


def test_a_failing_probe_answers_500(server: MetricsServer, state: State) -> None:
    """An error inside is answered without its details, and the server goes on."""
    server._probes["/v2/health/ready"] = lambda: 1 // 0 == 0
    status, _, body = get(server, "/v2/health/ready")
    assert status == 500
    assert b"ZeroDivision" not in body
    assert get(server, "/v2/health/live")[0] == 200


def test_silent_connections_keep_no_probe_waiting(server: MetricsServer) -> None:
    """There is a bound, and for one more the oldest is closed: the newest is always answered."""
    with ExitStack() as stack:
        silent = [connect(server, stack) for _ in range(3 * _MAX_CONNECTIONS)]
        assert get(server, "/v2/health/live")[0] == 200
        for oldest in silent[: -_MAX_CONNECTIONS + 1]:
            assert oldest.recv(1) == b""
        silent[-1].sendall(b"GET /v2/health/live HTTP/1.0\r\n\r\n")
        assert silent[-1].recv(12) == b"HTTP/1.0 200"


def connect(server: MetricsServer, stack: ExitStack) -> socket.socket:
    return stack.enter_context(socket.create_connection((server.address, server.port), timeout=10))


def test_a_taken_port_says_how_to_choose_another(server: MetricsServer) -> None:
    """The error names the address and the two flags that mend it."""
    second = MetricsServer(Metrics(), is_live=lambda: True, is_ready=lambda: True, port=server.port)
    with pytest.raises(ConfigError) as error:
        second.open()
    assert f"{server.address}:{server.port}" in str(error.value)
    assert "--metrics-port" in str(error.value)
    second.close()


def test_close_frees_the_port_and_the_thread() -> None:
    """After close nothing listens and no serving thread is left; closing twice is fine."""
    server = MetricsServer(Metrics(), is_live=lambda: True, is_ready=lambda: True)
    server.close()  # never opened
    server.open()
    port = server.port
    server.close()
    server.close()
    assert "metrics-http" not in {thread.name for thread in threading.enumerate()}
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)


def test_ipv6_is_served() -> None:
    """An IPv6 address can be listened on where the machine has IPv6."""
    if not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    server = MetricsServer(Metrics(), is_live=lambda: True, is_ready=lambda: True, address="::1")
    try:
        server.open()
    except ConfigError:
        pytest.skip("no IPv6 loopback here")
    try:
        assert get(server, "/v2/health/live")[0] == 200
    finally:
        server.close()
