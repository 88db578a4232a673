"""Serves /metrics, /v2/health/live and /v2/health/ready over HTTP from a thread of its own."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from typing import Any, Final

from headrace.errors import ConfigError
from headrace.metrics import Metrics
from headrace.metrics.exposition import render

log = logging.getLogger(__name__)

_TEXT: Final = "text/plain; charset=utf-8"
_MAX_CONNECTIONS: Final = 32
"""Scrapers and probes are few. For one more the oldest is closed: were the new one refused, silent
ones could keep probes from their answers, and an orchestrator would restart the server."""
_IDLE_S: Final = 5.0
"""A connection that sends no request for so long is closed."""
_POLL_S: Final = 0.2
"""How long `close` may wait for the serving thread to notice."""


class MetricsServer:
    """The HTTP endpoint of metrics and health. `open` binds and starts; `close` ends it.

    Args:
        metrics: What /metrics shows.
        is_live: Answers /v2/health/live: 200 when true, else 503.
        is_ready: Answers /v2/health/ready in the same way.
        address: The host name or address to listen on.
        port: 0 picks a free one; `self.port` tells it after `open`.
    """

    def __init__(
        self,
        metrics: Metrics,
        *,
        is_live: Callable[[], bool],
        is_ready: Callable[[], bool],
        address: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self.address = address
        self.port = port
        self._metrics = metrics
        self._probes = {"/v2/health/live": is_live, "/v2/health/ready": is_ready}
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    def open(self) -> None:
        """Listen and serve.

        Raises:
            ConfigError: The address cannot be bound.
        """
        try:
            self._server = _Server(self.address, self.port, self.answer)
        except OSError as error:
            raise ConfigError(
                f"cannot listen on {self.address}:{self.port} for metrics: "
                f"{error.strerror or error}; "
                "choose a free port with --metrics-port (0 picks one), "
                "or switch them off with --allow-metrics=false"
            ) from error
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_POLL_S,), name="metrics-http", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop listening; a second call does nothing."""
        server, self._server = self._server, None
        if server is None or self._thread is None:
            return
        server.shutdown()
        self._thread.join()
        server.server_close()

    def answer(self, path: str, accept: str) -> tuple[HTTPStatus, str, bytes]:
        """Return status, content type and body for a GET of `path`."""
        route = path.partition("?")[0].rstrip("/")
        if route == "/metrics":
            body, content_type = render(self._metrics.registry, accept)
            return HTTPStatus.OK, content_type, body
        if (probe := self._probes.get(route)) is not None:
            status = HTTPStatus.OK if probe() else HTTPStatus.SERVICE_UNAVAILABLE
            return status, _TEXT, b""
        known = ", ".join(("/metrics", *self._probes))
        return HTTPStatus.NOT_FOUND, _TEXT, f"not here; try one of: {known}\n".encode()


class _Server(ThreadingTCPServer):
    # Not http.server.HTTPServer, which looks its own name up in the DNS when it binds.
    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = _MAX_CONNECTIONS  # the default of 5 makes a burst of clients wait a second

    def __init__(
        self, address: str, port: int, answer: Callable[[str, str], tuple[HTTPStatus, str, bytes]]
    ) -> None:
        family, _, _, _, bind_address = socket.getaddrinfo(
            address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        self.address_family = family
        self.answer = answer
        self._open: dict[Any, None] = {}  # sockets, the oldest first
        self._lock = threading.Lock()
        super().__init__(bind_address, _Exchange)  # type: ignore[arg-type]  # IPv6's has four parts

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in its own thread; the oldest ends when too many are open."""
        with self._lock:
            if len(self._open) >= _MAX_CONNECTIONS:
                oldest = next(iter(self._open))
                del self._open[oldest]
                with contextlib.suppress(OSError):  # it may have left by itself
                    oldest.shutdown(socket.SHUT_RDWR)  # its thread sees the end, and closes it
            self._open[request] = None
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._lock:
                self._open.pop(request, None)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 (its caller's)
        log.debug("connection of %s broke", client_address, exc_info=True)


class _Exchange(BaseHTTPRequestHandler):
    """One request and its answer."""

    server: _Server
    server_version = "headrace"
    sys_version = ""
    timeout = _IDLE_S

    def do_GET(self) -> None:
        try:
            answer = self.server.answer(self.path, self.headers.get("Accept", ""))
        except Exception:
            log.exception("GET %s failed", self.path)
            answer = HTTPStatus.INTERNAL_SERVER_ERROR, _TEXT, b"internal error; the log says more\n"
        status, content_type, body = answer
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the base class's name)
        """Log at debug level; probes come every few seconds."""
        log.debug("%s: %s", self.address_string(), format % args)
