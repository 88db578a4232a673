"""Weighs the fields of a request, before protobuf makes something of each.

A field of two bytes becomes an object of a hundred: a message of 2 MB, a million empty inputs, took
0.1 s and 80 MB to parse, and one of 64 MB would take as many times more. To look at a field takes
longer than to parse it, but that stops where there are too many.
"""

from __future__ import annotations

from typing import Any

LEAST_FIELD_BYTES = 2  # a tag, and a length or a value: shorter messages need no count

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

# Strings of a tensor take longer to look at than to parse: after so many of them, the rest weighs
# what it would if each had 64 bytes. Empty ones get off lightly, for 1.5 us of parsing a field.
_FEW = 4096
_STRINGS_SHIFT = 6

_DELIMITED = 2
_FIXED_BYTES = {1: 8, 3: 0, 4: 0, 5: 4}  # 3 and 4 are a group's ends: what is in it follows


def has_more_fields(message: bytes, most: int) -> bool:
    """Say whether a serialized ModelInferRequest weighs more than so many fields, at all depths.

    What is malformed is protobuf's to refuse, when it has parsed what comes before.
    """
    if len(message) < LEAST_FIELD_BYTES * most:
        return False
    count, few = 0, most
    outer = [(0, len(message), _REQUEST)]
    while outer and count <= most:
        at, end, inside = outer.pop()
        try:
            while at < end and count <= most:
                if inside is _CONTENTS and count >= few:
                    count += (end - at) >> _STRINGS_SHIFT
                    break
                tag, at = _varint(message, at)
                count += 1
                kind, within = tag & 7, inside.get(tag >> 3)
                if kind == 0:
                    _, at = _varint(message, at)
                elif kind != _DELIMITED:
                    at += _FIXED_BYTES.get(kind, end)  # no other kinds: malformed
                else:
                    size, at = _varint(message, at)
                    stop = at + size
                    if isinstance(within, dict) and stop <= end:
                        outer.append((stop, end, inside))
                        end, inside, few = stop, within, count + _FEW
                    else:
                        count += size >> within if isinstance(within, int) else 0
                        at = stop
        except IndexError:
            continue
    return count > most


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """Return the value that starts at `at`, and where it ends; IndexError for none."""
    value = message[at]
    at += 1
    if value < 0x80:
        return value, at
    value &= 0x7F
    for shift in range(7, 70, 7):
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise IndexError
