"""Weighs the fields of a request, before protobuf makes something of each.

A field of two bytes becomes an object of a hundred: a message of 2 MB, a million empty inputs, took
0.1 s and 80 MB to parse, and one of 64 MB would take as many times more. To look at a field takes
longer than to parse it, but that stops where there are too many, and short messages are not looked
at.
"""

from __future__ import annotations

from typing import Any

LEAST_FIELD_BYTES = 2  # a tag, and a length or a value: shorter messages need no count

FREE_BYTES = 1 << 20
"""What is no longer is parsed sooner than weighed: of the smallest fields within an input, half a
million, in 35 ms."""

# The fields of ModelInferRequest that have more in them, by their numbers in inference.proto: other
# fields or, as the shift from bytes to how many fields cost as much, packed varints. 16 of a tensor
# take about as long as a field; a shape that is longer than fields may be is none.
_PARAMETER: dict[int, Any] = {2: {}}  # an entry of the map, and the value in it
_CONTENTS: dict[int, Any] = dict.fromkeys(range(1, 6), 4)
_REQUEST: dict[int, Any] = {
    4: _PARAMETER,
    5: {3: 0, 4: _PARAMETER, 5: _CONTENTS},
    6: {3: _PARAMETER},
}

NESTED = 4
"""What a field weighs that has fields in it: it takes so many times as long to look at."""

_STRING = 0x42  # an entry of InferTensorContents.bytes_contents
_DELIMITED = 2
_HAS_VARINT = frozenset((0, _DELIMITED))
_FIXED_BYTES = {1: 8, 3: 0, 4: 0, 5: 4}  # 3 and 4 are a group's ends: what is in it follows


def has_more_fields(
    message: bytes,
    most: int,
    *,
    outer: int = 1,
    free_bytes: int = FREE_BYTES,
    inner: dict[int, Any] = _REQUEST,
) -> bool:
    """Say whether a serialized ModelInferRequest weighs more than so many fields, at all depths.

    What is malformed is protobuf's to refuse, when it has parsed what comes before.

    Args:
        message: It.
        most: That many are not too many.
        outer: What a field of the message itself weighs, and not of what is in it.
        free_bytes: Of the longest message that is not looked at.
        inner: For another message, which of its fields have more in them: {} for none that count.
    """
    if len(message) <= free_bytes:
        return False
    count = 0
    open_ = [(0, len(message), inner)]
    while open_ and count <= most:
        at, end, inside = open_.pop()
        weight = 1 if open_ else outer
        try:
            while at < end and count <= most:
                if inside is _CONTENTS:
                    at, num_strings = _skip_strings(message, at, end, most - count)
                    count += num_strings
                    if at >= end:
                        break
                kind, number, size, at = _field(message, at)
                count += weight
                within = inside.get(number) if kind == _DELIMITED else None
                stop = at + size
                if isinstance(within, dict) and stop <= end:
                    count += NESTED - 1
                    open_.append((stop, end, inside))
                    end, inside, weight = stop, within, 1
                else:
                    count += size >> within if isinstance(within, int) else 0
                    at = stop
        except IndexError:
            continue
    return count > most


def _skip_strings(message: bytes, at: int, end: int, most: int) -> tuple[int, int]:
    """Return where the short strings of a tensor end that start at `at`, and how many there are.

    Of what a message consists of they are what there may honestly be very many of.
    """
    count = 0
    while at < end and message[at] == _STRING and count <= most:
        size = message[at + 1]
        if size > 0x7F:
            high = message[at + 2]
            if high > 0x7F:
                break
            at += 1
            size += (high - 1) << 7
        at += LEAST_FIELD_BYTES + size
        count += 1
    return at, count


def _field(message: bytes, at: int) -> tuple[int, int, int, int]:
    """Return kind and number of a field, the bytes of its content, and where that starts."""
    tag = message[at]
    at += 1
    if tag > 0x7F:
        tag, at = _varint(message, at - 1)
    kind = tag & 7
    if kind not in _HAS_VARINT:
        return kind, tag >> 3, _FIXED_BYTES.get(kind, len(message)), at  # no other kinds: malformed
    size = message[at]
    at += 1
    if size > 0x7F:
        size, at = _varint(message, at - 1)
    return kind, tag >> 3, size if kind else 0, at


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """Return the value that starts at `at`, and where it ends; IndexError for none."""
    value = shift = 0
    for byte in message[at : at + 10]:
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
    raise IndexError
