"""A name server on 127.0.0.1 that gives every name the same IPv4 addresses; for `dns:` targets."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

TYPE_A, CLASS_IN = 1, 1
ANSWER, NO_ERROR = 0x8180, 0


def _reply(query: bytes, addresses: Sequence[str]) -> bytes:
    end = query.index(b"\0", 12) + 5  # one question: a name, its type, its class
    (kind,) = struct.unpack_from(">H", query, end - 4)
    found = addresses if kind == TYPE_A else ()
    header = query[:2] + struct.pack(">5H", ANSWER, 1, len(found), 0, 0)
    answers = [
        # 0xC00C points back to the question's name.
        struct.pack(">HHHIH", 0xC00C, TYPE_A, CLASS_IN, 60, 4) + socket.inet_aton(address)
        for address in found
    ]
    return header + query[12:end] + b"".join(answers)


@contextmanager
def dns_server(addresses: Sequence[str]) -> Iterator[str]:
    """Answers until the block ends; gives its own "host:port"."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        stop = b"stop"

        def serve() -> None:
            while True:
                query, peer = sock.recvfrom(4096)
                if query == stop:
                    return
                sock.sendto(_reply(query, addresses), peer)

        thread = threading.Thread(target=serve)
        thread.start()
        host, port = sock.getsockname()
        try:
            yield f"{host}:{port}"
        finally:
            sock.sendto(stop, (host, port))
            thread.join()
