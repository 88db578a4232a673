"""The framing of BYTES tensors: a 4-byte little-endian length before the bytes of each element."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from headrace_proto.datatypes import TensorError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from typing_extensions import Buffer

_LENGTH = struct.Struct("<I")


def check_bytes(buffer: Buffer, num_elements: int) -> None:
    """Check that a buffer holds exactly so many BYTES elements and nothing else.

    Raises:
        TensorError: An element is cut off, or bytes are left over.
    """
    length_at = _LENGTH.unpack_from
    at = 0
    try:
        for _ in range(num_elements):
            at += 4 + length_at(buffer, at)[0]
    except struct.error:
        raise _misfit(buffer, num_elements) from None
    if at != memoryview(buffer).nbytes:
        raise _misfit(buffer, num_elements)


def decode_bytes(buffer: Buffer, num_elements: int) -> list[bytes]:
    """Give the elements of a BYTES tensor, in C order.

    Raises:
        TensorError: As `check_bytes`.
    """
    check_bytes(buffer, num_elements)
    data = bytes(buffer)  # slices of bytes are much cheaper than those of a view
    length_at = _LENGTH.unpack_from
    elements = []
    at = 0
    for _ in range(num_elements):
        start = at + 4
        at = start + length_at(data, at)[0]
        elements.append(data[start:at])
    return elements


def encode_bytes(elements: Iterable[bytes | str]) -> bytes:
    """Give the raw bytes of a BYTES tensor; text goes as UTF-8.

    Raises:
        TensorError: An element is neither bytes nor text.
    """
    pieces: list[bytes] = []
    for number, element in enumerate(elements):
        if isinstance(element, str):
            data = _encode_text(element, number)
        elif isinstance(element, bytes):
            data = element
        else:
            raise TensorError(f"element {number} is {type(element).__name__}, not bytes or str")
        pieces += (_LENGTH.pack(len(data)), data)
    return b"".join(pieces)


def _encode_text(text: str, number: int) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise TensorError(f"element {number} is text that has no UTF-8: {error}") from error


def _misfit(buffer: Buffer, num_elements: int) -> TensorError:
    """Walk again, to say what `check_bytes` found: it keeps no count while all is well."""
    size_bytes = memoryview(buffer).nbytes
    at = number = 0
    fault = ""
    while number < num_elements and not fault:
        left = size_bytes - at - 4
        if left < 0:
            fault = f"has no length: {size_bytes} bytes came"
        elif (length := _LENGTH.unpack_from(buffer, at)[0]) > left:
            fault = f"claims {length} bytes, and {left} are left"
        else:
            at += 4 + length
            number += 1
    if fault:
        return TensorError(f"element {number} of {num_elements}, at byte {at}, {fault}")
    return TensorError(f"{num_elements} elements end at byte {at}, and {size_bytes} bytes came")
