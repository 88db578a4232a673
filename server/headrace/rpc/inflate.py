"""Unpacks compressed messages, never to more than a limit: the limit ends the unpacking itself.

grpcio before 1.83.1 unpacks a whole message before it looks at its size, and every release holds
the interpreter lock meanwhile. So its own unpacking is switched off (`OPTION`), messages come here
as they were sent, and small ones are unpacked at once, others by a thread beside the loop.

grpcio does not tell which messages are compressed, but they show it. Gzip begins with 1F 8B, which
no protobuf message does: there is no wire type 7. Deflate (zlib's format) begins with 78 and one of
four bytes, as protobuf would begin a field 15 of type varint, which none of our requests has.
"""

from __future__ import annotations

import asyncio
import zlib
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from typing import Final

from headrace.errors import RequestError, TooLargeError

OPTION: Final = ("grpc.per_message_decompression", 0)
PLAIN: Final = 0x0A
"""How a ModelInferRequest begins: with its model's name. To look at that first costs each request
60 ns instead of 170."""
HEADS: Final = frozenset((b"\x1f\x8b", b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda"))

_EITHER: Final = zlib.MAX_WBITS | 32  # zlib's notation for "gzip or zlib, as it begins"
_INLINE_BYTES: Final = 32_768
"""What is unpacked on the loop: 0.1 ms, about what a hand-over to a thread costs a busy server."""
_PIECE_BYTES: Final = 65_536  # of what is packed; what is left of one is copied for each chunk
_CHUNK_BYTES: Final = 262_144  # of what is unpacked: 50 us under the interpreter lock
_NUM_THREADS: Final = 2
"""Memory for messages that are being unpacked: twice the limit for each, while its bytes grow."""


class Inflater:
    """Unpacks messages for an event loop."""

    def __init__(self, max_bytes: int) -> None:
        """Prepare; no message may be larger than `max_bytes` when unpacked."""
        self._max_bytes = max_bytes
        self._threads = ThreadPoolExecutor(_NUM_THREADS, "headrace-inflate")

    async def unpacked(self, message: bytes) -> bytes:
        """Return the message itself, or what is packed in it.

        Raises:
            RequestError: It is broken, or too large (TooLargeError).
        """
        if message[:2] not in HEADS:
            return message
        small = inflated_to(message, min(_INLINE_BYTES, self._max_bytes))
        if small is not None:
            return small
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, inflated, message, self._max_bytes)

    def close(self) -> None:
        """Let the threads end; messages that wait are dropped. A second call does nothing."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def small_unpacked(message: bytes) -> bytes:
    """Return a message of a few names, or what is packed in it.

    Raises:
        RequestError: It is broken, or too large for what it is.
    """
    return inflated(message, _INLINE_BYTES) if message[:2] in HEADS else message


def inflated(message: bytes, max_bytes: int) -> bytes:
    """Return what is packed in a message.

    Raises:
        TooLargeError: It is more than `max_bytes`; no more than that was unpacked.
        RequestError: It is broken.
    """
    unpacked = inflated_to(message, max_bytes)
    if unpacked is None:
        raise TooLargeError(
            f"Received message larger than max (unpacked from {len(message)} bytes to more than "
            f"{max_bytes}); the operator can raise --grpc-max-request-bytes"
        )
    return unpacked


def inflated_to(message: bytes, max_bytes: int) -> bytes | None:
    """Return what is packed in a message, None when it is more than `max_bytes`.

    In pieces, between which other threads get the interpreter lock; and zlib joins what it unpacks
    under that lock: 63 MiB at one go stopped the loop for 0.3 s. `BytesIO` gives its bytes away
    without a copy.

    Raises:
        RequestError: It is broken.
    """
    stream = zlib.decompressobj(_EITHER)
    unpacked, packed = BytesIO(), memoryview(message)
    num_taken = 0
    try:
        while num_taken < len(packed) and not stream.eof:
            piece: bytes | memoryview = packed[num_taken : num_taken + _PIECE_BYTES]
            num_taken += len(piece)
            is_drained = False
            while not is_drained:
                chunk = stream.decompress(piece, _CHUNK_BYTES)
                piece = stream.unconsumed_tail
                is_drained = not piece and len(chunk) < _CHUNK_BYTES
                if unpacked.tell() + len(chunk) > max_bytes:
                    return None
                unpacked.write(chunk)
    except zlib.error as error:
        raise RequestError(f"the compressed message cannot be unpacked: {error}") from error
    if not stream.eof:
        raise RequestError("the compressed message ends too early")
    if stream.unused_data or num_taken < len(packed):
        raise RequestError("bytes follow behind the compressed message")
    return unpacked.getvalue()
