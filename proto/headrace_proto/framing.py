"""The framing of BYTES tensors: a 4-byte little-endian length before the bytes of each element."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, cast

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
    data = bytes(buffer)  # slices of bytes are much cheaper than those of a view
    length_at = _LENGTH.unpack_from
    elements = []
    at = 0
    try:
        for _ in range(num_elements):
            start = at + 4
            at = start + length_at(data, at)[0]
            elements.append(data[start:at])  # shorter where it is cut off: then `at` lies beyond
    except struct.error:
        raise _misfit(data, num_elements) from None
    if at != len(data):
        raise _misfit(data, num_elements)
    return elements


def encode_bytes(elements: Iterable[bytes | str]) -> bytes:
    """Give the raw bytes of a BYTES tensor; text goes as UTF-8.

    Raises:
        TensorError: An element is neither bytes nor text.
    """
    encoded = _encoded(list(elements))
    pieces = [b""] * (2 * len(encoded))
    pieces[::2] = map(_LENGTH.pack, map(len, encoded))  # a third of what a loop costs
    pieces[1::2] = encoded
    return b"".join(pieces)


def _encoded(elements: list[bytes | str]) -> list[bytes]:
    """Give every element as bytes; nearly always all are of one type."""
    kinds = set(map(type, elements))
    if kinds <= {bytes}:
        return cast("list[bytes]", elements)
    if kinds == {str}:
        try:
            return list(map(str.encode, cast("list[str]", elements)))
        except UnicodeEncodeError:
            pass  # one by one, to say which
    return [_encode(element, number) for number, element in enumerate(elements)]


def _encode(element: bytes | str, number: int) -> bytes:
    if isinstance(element, str):
        return _encode_text(element, number)
    if isinstance(element, bytes):
        return element
    raise TensorError(f"element {number} is {type(element).__name__}, not bytes or str")


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
