"""A gRPC client that may misbehave: raw HTTP/2 over one socket, for what no proper client sends."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import h2.settings

INFER = "/inference.GRPCInferenceService/ModelInfer"
_RECV_BYTES = 1 << 16
_WINDOW_BYTES = 1 << 24  # our receive windows unless a test wants to be a slow reader


def frame(message: bytes, *, compressed: bool = False, claim: int | None = None) -> bytes:
    """The five-byte gRPC prefix and the message; `claim` lies about the length."""
    size = len(message) if claim is None else claim
    return bytes([compressed]) + size.to_bytes(4, "big") + message


@dataclass
class Answer:
    """What came back on one stream."""

    headers: dict[str, str] = field(default_factory=dict)
    trailers: dict[str, str] = field(default_factory=dict)
    data: bytearray = field(default_factory=bytearray)
    reset: int | None = None  # HTTP/2 error code when the server reset the stream
    ended: bool = False

    @property
    def http_status(self) -> str:
        """`:status`, "" when no headers came."""
        return self.headers.get(":status", "")

    @property
    def grpc_status(self) -> int | None:
        """grpc-status from the trailers or a trailers-only answer; None when there is none."""
        value = self.trailers.get("grpc-status", self.headers.get("grpc-status"))
        return None if value is None else int(value)

    @property
    def grpc_message(self) -> str:
        """grpc-message, still percent-encoded."""
        return self.trailers.get("grpc-message", self.headers.get("grpc-message", ""))

    @property
    def message(self) -> bytes:
        """The first gRPC message of the body without its prefix."""
        return bytes(self.data[5:])


class RawHttp2:
    """One HTTP/2 connection to `address` ("host:port"), driven by hand.

    With `window_bytes` small and `read=False` on the waits it is a client that does not read.
    """

    def __init__(
        self, address: str, *, window_bytes: int = _WINDOW_BYTES, timeout_s: float = 20.0
    ) -> None:
        host, port = address.rsplit(":", 1)
        self.authority = address
        self.socket = socket.create_connection((host, int(port)), timeout=timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.timeout_s = timeout_s
        self.answers: dict[int, Answer] = {}
        self.goaway: int | None = None
        self.closed = False
        self.is_broken = False
        config = h2.config.H2Configuration(
            client_side=True, header_encoding="utf-8", validate_outbound_headers=False
        )
        self.h2 = h2.connection.H2Connection(config=config)
        self.h2.initiate_connection()
        self.h2.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: window_bytes})
        if window_bytes > 65535:
            self.h2.increment_flow_control_window(window_bytes)
        self.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.socket.close()

    def flush(self) -> None:
        """Sends what the state machine has queued."""
        self.send_raw(self.h2.data_to_send())

    def send_raw(self, data: bytes) -> None:
        """Sends bytes past the state machine; marks the connection when nobody takes them."""
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            self.is_broken = True  # what the server said before it hung up can still be read

    def open(
        self,
        path: str = INFER,
        *,
        method: str = "POST",
        content_type: str | None = "application/grpc",
        extra: Iterable[tuple[str, str]] = (),
        end: bool = False,
    ) -> int:
        """Starts a stream by its headers; returns the stream's number."""
        stream = self.h2.get_next_available_stream_id()
        headers = [
            (":method", method),
            (":scheme", "http"),
            (":path", path),
            (":authority", self.authority),
            ("te", "trailers"),
        ]
        if content_type is not None:
            headers.append(("content-type", content_type))
        self.h2.send_headers(stream, [*headers, *extra], end_stream=end)
        self.answers[stream] = Answer()
        self.flush()
        return stream

    def send(self, stream: int, data: bytes, *, end: bool = True) -> None:
        """Sends body bytes within the server's windows, reading as needed."""
        view = memoryview(data)
        while view and not self.answers[stream].ended:
            room = min(
                self.h2.local_flow_control_window(stream),
                self.h2.max_outbound_frame_size,
                len(view),
            )
            if room <= 0:
                self.pump()
                continue
            self.h2.send_data(stream, bytes(view[:room]))
            view = view[room:]
            self.flush()
        if end and not self.answers[stream].ended:
            with contextlib.suppress(h2.exceptions.ProtocolError):
                self.h2.end_stream(stream)
            self.flush()

    def reset(self, stream: int, code: int = int(h2.errors.ErrorCodes.CANCEL)) -> None:
        """Cancels a stream as gRPC clients do; one that has ended is left alone."""
        with contextlib.suppress(h2.exceptions.StreamClosedError):
            self.h2.reset_stream(stream, code)
        self.flush()

    def pump(self) -> None:
        """Reads once and takes in what came; marks the connection closed at its end."""
        try:
            data = self.socket.recv(_RECV_BYTES)
        except ConnectionResetError:
            data = b""
        if not data:
            self.closed = True
            for answer in self.answers.values():
                answer.ended = True
            return
        for event in self.h2.receive_data(data):
            self._take(event)
        self.flush()

    def wait(self, stream: int) -> Answer:
        """The whole answer of a stream; what there is of it when the server says GOAWAY."""
        until = time.monotonic() + self.timeout_s
        answer = self.answers[stream]
        while not answer.ended and self.goaway is None:
            if time.monotonic() > until:
                raise TimeoutError(
                    f"stream {stream} did not end within {self.timeout_s} s: {answer}"
                )
            self.pump()
        return answer

    def call(self, message: bytes, path: str = INFER, **headers: str) -> Answer:
        """One proper unary call."""
        stream = self.open(path, extra=[(k.replace("_", "-"), v) for k, v in headers.items()])
        self.send(stream, frame(message))
        return self.wait(stream)

    def _take(self, event: h2.events.Event) -> None:
        match event:
            case h2.events.ResponseReceived(stream_id=stream, headers=headers):
                self.answers[stream].headers = dict(_text(headers))
            case h2.events.TrailersReceived(stream_id=stream, headers=headers):
                self.answers[stream].trailers = dict(_text(headers))
            case h2.events.DataReceived(stream_id=stream, data=data):
                self.answers[stream].data += data or b""
                self.h2.acknowledge_received_data(event.flow_controlled_length or 0, stream)
            case h2.events.StreamEnded(stream_id=stream):
                self.answers[stream].ended = True
            case h2.events.StreamReset(stream_id=stream, error_code=code):
                self.answers[stream].reset = int(code or 0)
                self.answers[stream].ended = True
            case h2.events.ConnectionTerminated(error_code=code):
                self.goaway = int(code or 0)
            case _:
                pass


def _text(headers: Iterable[tuple[str | bytes, str | bytes]] | None) -> Iterator[tuple[str, str]]:
    for name, value in headers or ():
        yield (
            name.decode() if isinstance(name, bytes) else name,
            value.decode() if isinstance(value, bytes) else value,
        )
