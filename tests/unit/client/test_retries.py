"""What is sent again and what never is, by counting at the server."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import grpc
import numpy as np
import pytest

from headrace_client import DeadlineExceeded, HeadraceClientError, ServerUnavailable
from helpers.echo_server import EchoServer, Failure, echo_server
from helpers.either_client import KINDS, open_client

ARRAY = np.zeros(3, np.float32)
AWAY = Failure(grpc.StatusCode.UNAVAILABLE, "starting", times=2)


@pytest.fixture
def echo() -> Iterator[EchoServer]:
    with echo_server() as server:
        yield server


@pytest.mark.parametrize("kind", KINDS)
def test_a_read_outlives_a_short_absence(kind: str, echo: EchoServer) -> None:
    """Metadata is asked for again while the server is unavailable."""
    echo.failures["ModelMetadata"] = AWAY
    with open_client(kind, echo.url) as client:
        assert client.model_metadata("echo").name == "echo"
    assert echo.calls["ModelMetadata"] == 3


@pytest.mark.parametrize("kind", KINDS)
def test_pushback_ends_retries(kind: str, echo: EchoServer) -> None:
    """A server that says "do not retry" is not asked again."""
    echo.failures["ModelMetadata"] = AWAY._replace(trailing=(("grpc-retry-pushback-ms", "-1"),))
    with open_client(kind, echo.url) as client, pytest.raises(ServerUnavailable):
        client.model_metadata("echo")
    assert echo.calls["ModelMetadata"] == 1


@pytest.mark.parametrize("kind", KINDS)
def test_an_inference_is_never_retried(kind: str, echo: EchoServer) -> None:
    """UNAVAILABLE to an inference may come after the work: it is the caller's to decide."""
    echo.failures["ModelInfer"] = AWAY
    with open_client(kind, echo.url) as client, pytest.raises(ServerUnavailable):
        client.infer("echo", {"x": ARRAY})
    assert echo.calls["ModelInfer"] == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_probe_is_never_retried(kind: str, echo: EchoServer) -> None:
    """For a probe UNAVAILABLE is the answer, and a quick one."""
    for name in ("ServerLive", "ServerReady", "ModelReady"):
        echo.failures[name] = AWAY
    echo.failures["Check"] = AWAY
    with open_client(kind, echo.url) as client:
        assert not client.is_live()
        assert not client.is_ready()
        assert not client.is_model_ready("echo")
        with pytest.raises(ServerUnavailable):
            client.health()
    assert set(echo.calls.values()) == {1}


class HangingUp:
    """Accepts connections, forwards to `target`, and cuts the wire when told."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.sockets: list[socket.socket] = []
        self.threads = [threading.Thread(target=self.accept)]
        self.threads[0].start()

    def accept(self) -> None:
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            host, _, port = self.target.rpartition(":")
            far = socket.create_connection((host, int(port)))
            self.sockets += [near, far]
            for source, sink in ((near, far), (far, near)):
                thread = threading.Thread(target=self.pump, args=(source, sink))
                self.threads.append(thread)
                thread.start()

    @staticmethod
    def pump(source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                sink.sendall(data)
        except OSError:
            return

    def cut(self) -> None:
        for each in (self.listener, *self.sockets):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self.threads:
            thread.join(10)


@pytest.mark.parametrize("kind", KINDS)
def test_a_connection_that_breaks_during_an_inference(kind: str, echo: EchoServer) -> None:
    """A request that may be running is not sent anew when the wire breaks: it runs once."""
    echo.hold = True
    wire = HangingUp(echo.url)

    def cut_when_running() -> None:
        assert echo.held.wait(10)
        wire.cut()

    cutter = threading.Thread(target=cut_when_running)
    cutter.start()
    with open_client(kind, wire.url) as client, pytest.raises(ServerUnavailable):
        client.infer("echo", {"x": ARRAY}, timeout_s=10)
    cutter.join()
    assert echo.calls["ModelInfer"] == 1


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@pytest.mark.parametrize("kind", KINDS)
def test_no_server(kind: str) -> None:
    """Without a server an inference fails at once, and questions are answered with no."""
    with open_client(kind, f"127.0.0.1:{free_port()}") as client:
        with pytest.raises(ServerUnavailable, match="onnect"):
            client.infer("echo", {"x": ARRAY})
        assert not client.is_live()
        assert not client.is_ready()
        assert not client.is_model_ready("echo")


@pytest.mark.parametrize("kind", KINDS)
def test_waiting_for_a_server(kind: str) -> None:
    """A client that was told to wait connects when the server comes, and gives up in time."""
    port = free_port()
    with open_client(kind, f"127.0.0.1:{port}", wait_for_ready=True) as client:
        with pytest.raises(DeadlineExceeded):
            client.infer("echo", {"x": ARRAY}, timeout_s=0.2)
        with echo_server(f"127.0.0.1:{port}") as echo:
            assert np.array_equal(client.infer("echo", {"x": ARRAY}, timeout_s=10)["x"], ARRAY)
            assert echo.calls["ModelInfer"] == 1


@pytest.mark.parametrize("kind", KINDS)
def test_every_failure_is_of_the_one_tree(kind: str, echo: EchoServer) -> None:
    """Whatever status a server invents, the caller catches one class."""
    with open_client(kind, echo.url) as client:
        for code in grpc.StatusCode:
            if code is grpc.StatusCode.OK:
                continue
            echo.failures["ModelInfer"] = Failure(code, "so it is")
            with pytest.raises(HeadraceClientError) as caught:
                client.infer("echo", {"x": ARRAY})
            assert caught.value.code is code  # type: ignore[attr-defined]
