"""HTTP/2 frames made by hand, right ones and wrong ones, and floods of them."""

from __future__ import annotations

import socket
import struct

from helpers.server import Server

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PING = 0, 1, 2, 3, 4, 6
WINDOW_UPDATE, CONTINUATION = 8, 9
UNKNOWN_TYPE = 77


def http2_frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Any frame, right or wrong."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


FLOODS = {
    "ping": http2_frame(PING, 0, 0, b"12345678"),
    "settings": http2_frame(SETTINGS, 0, 0),
    "window": http2_frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 1)),
    "priority": http2_frame(PRIORITY, 0, 1, struct.pack(">IB", 0, 1)),
    "unknown": http2_frame(UNKNOWN_TYPE, 0, 0, bytes(100)),
}


def connect(server: Server) -> socket.socket:
    """A bare connection to the gRPC port."""
    host, port = server.address.rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout=10)
