"""Scans the bytes of an inference request for its tensors, and writes a response around them.

This is on the path of every request. protobuf would copy each tensor once to parse it and once more
to read it; here the tensors of a request stay where they arrived, as memoryviews, and those of a
response are copied once.

The scan knows only length-delimited fields with a tag of one byte, which is all that clients send.
Whatever looks otherwise, valid or not, goes to protobuf, so that the two cannot disagree: unknown
fields of other types, groups, long tags, lengths that overrun the message, ids that are not UTF-8.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from google.protobuf.message import DecodeError

from headrace_proto.fields import LEAST_FIELD_BYTES, has_more_fields
from headrace_proto.v1 import inference_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Buffer

# The largest length that protobuf accepts, and the largest message that gRPC's peers do.
MAX_BYTES = 2**31 - 1

# Beyond so many fields, inputs, outputs, tensors and parameters together, a message is no request:
# each becomes an object, and they have a server's thread for themselves meanwhile.
MAX_FIELDS = 65_536
_NEAR_BYTES = LEAST_FIELD_BYTES * MAX_FIELDS  # there are no more in so many: no need to count

# What protobuf has to take apart is weighed before: of all fields there may be so many times more.
_OUTER = 3

# Tags are a field's number times 8, plus 2 for length-delimited.
_ID = 0x1A
_RAW_INPUT = 0x3A
_TAGS = frozenset(range(0x0A, 0x80, 8))  # fields 1 to 15, known or not
_HEAD_TAGS = _TAGS - {_ID, _RAW_INPUT}

_RAW_OUTPUT_FIELD = 6

# The second is how protobuf in pure Python refuses a string that is not UTF-8.
_REFUSALS = (DecodeError, UnicodeDecodeError)


class WireError(ValueError):
    """Bytes that protobuf refuses, or a message that would be too large for it."""


class _Reach(NamedTuple):
    """How many more fields there may be behind a place that so many tensors lie before."""

    at: int
    num_raw: int
    most: int


_AT_FIRST = _Reach(0, 0, MAX_FIELDS)


class RequestParts(NamedTuple):
    """The bytes of one ModelInferRequest, taken apart.

    Attributes:
        head: The message without `id` and `raw_input_contents`, the other fields in their order.
            It does not vary with the data: what was parsed from it once holds whenever it recurs.
        id: The request's id, "" when it has none.
        raw: The entries of `raw_input_contents`: read-only views into the message.
    """

    head: bytes
    id: str
    raw: list[memoryview]


def split_request(message: bytes) -> RequestParts:
    """Take a serialized ModelInferRequest apart without copying its tensors.

    What lies inside the fields of the head is not looked at; `parse_request` does that too.

    Raises:
        WireError: protobuf would refuse the message for more than the inside of a head field, or it
            has more than `MAX_FIELDS`.
    """
    end = len(message)
    near, reach = (end if end < _NEAR_BYTES else _NEAR_BYTES), _AT_FIRST  # noqa: FURB136 -- quicker
    view = memoryview(message)
    request_id = ""
    raw: list[memoryview] = []
    head: list[bytes] = []
    at = kept = 0  # start of the next field; start of what goes into the head next
    try:
        while at < end:
            while at < near:
                start = at
                tag = message[at]
                size = message[at + 1]
                at += 2
                if size > 0x7F:
                    size, at = _long_length(message, at - 1)
                stop = at + size
                if stop > end:
                    return _split_by_protobuf(message)
                if tag in _HEAD_TAGS:
                    at = stop
                    continue
                if tag == _RAW_INPUT:
                    raw.append(view[at:stop])
                elif tag == _ID:
                    request_id = message[at:stop].decode()
                else:
                    return _split_by_protobuf(message)
                if kept < start:
                    head.append(message[kept:start])
                at = kept = stop
            if at < end:
                near, reach = _reach_further(message, at, raw, reach)
    except (IndexError, UnicodeDecodeError):
        return _split_by_protobuf(message)
    if kept < end:
        head.append(message[kept:])
    # As RequestParts(...), in half the time.
    return tuple.__new__(RequestParts, (b"".join(head), request_id, raw))


def parse_request(message: bytes) -> tuple[pb.ModelInferRequest, RequestParts]:
    """Take a ModelInferRequest apart and parse its head.

    Returns:
        The message without `id` and `raw_input_contents`, and the parts, which have them.

    Raises:
        WireError: protobuf would refuse the message.
    """
    parts = split_request(message)
    try:
        return pb.ModelInferRequest.FromString(parts.head), parts
    except _REFUSALS as error:
        raise _refusal(message, error) from error


def join_response(head: bytes, raw: Sequence[Buffer]) -> bytes:
    """Serialize a ModelInferResponse; the tensors are copied once, into the result.

    Args:
        head: The serialized message without `raw_output_contents`.
        raw: Its entries, C-contiguous, in the order of the outputs.

    Raises:
        WireError: The response would be larger than any client accepts.
    """
    pieces: list[Buffer] = [head]
    total_bytes = len(head)
    for entry in raw:
        size_bytes = len(entry) if type(entry) is bytes else memoryview(entry).nbytes
        prefix = delimited(_RAW_OUTPUT_FIELD, size_bytes)
        pieces += (prefix, entry)
        total_bytes += len(prefix) + size_bytes
    if total_bytes > MAX_BYTES:
        raise WireError(
            f"the response would have {total_bytes} bytes, and a message holds {MAX_BYTES}: "
            "ask for fewer outputs, or send a smaller batch"
        )
    return b"".join(pieces)


@lru_cache(maxsize=1024)  # a model has few sizes, and a hit costs a fifth of the loop
def delimited(field_number: int, size_bytes: int) -> bytes:
    """Give what precedes a length-delimited field of this size: its tag and its length."""
    return _varint(field_number << 3 | 2) + _varint(size_bytes)


def _varint(value: int) -> bytes:
    groups = bytearray()
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    groups.append(value)
    return bytes(groups)


def _long_length(message: bytes, at: int) -> tuple[int, int]:
    """Read a length of several bytes that starts at `at`; returns it and where it ends."""
    size = message[at] & 0x7F
    for shift in (7, 14, 21, 28):
        at += 1
        byte = message[at]
        size |= (byte & 0x7F) << shift
        if byte < 0x80 and size <= MAX_BYTES:
            return size, at + 1
    raise IndexError  # as when the message ends here: no length that can be read


def _reach_further(
    message: bytes, at: int, raw: list[memoryview], reach: _Reach
) -> tuple[int, _Reach]:
    """Return how far a scan may go on that has come to `at`, where it took the message as `raw`.

    The fields so far are no more than the bytes around tensors allow. Only where that is not enough
    they are counted, all at once.

    Raises:
        WireError: There are too many.
        IndexError: There is one that the scan does not know.
    """
    around = at - reach.at - sum(map(len, raw[reach.num_raw :]))
    most = reach.most - (around + 1) // LEAST_FIELD_BYTES
    if most > 0:
        return min(len(message), at + LEAST_FIELD_BYTES * most), _Reach(at, len(raw), most)
    _count(message)
    return len(message), reach


def _count(message: bytes) -> None:
    """Hold that a message has no more fields than it may; the errors are `_reach_further`'s."""
    at, end = 0, len(message)
    for _ in range(MAX_FIELDS):
        if at == end:
            return
        if message[at] not in _TAGS:
            raise IndexError
        size = message[at + 1]
        at += 2
        if size > 0x7F:
            size, at = _long_length(message, at - 1)
        at += size
    if at < end:
        raise _excess(message)


def _split_by_protobuf(message: bytes) -> RequestParts:
    most = _OUTER * MAX_FIELDS
    if has_more_fields(message, most, outer=_OUTER, free_bytes=_NEAR_BYTES):
        raise _excess(message)
    try:
        request = pb.ModelInferRequest.FromString(message)
    except _REFUSALS as error:
        raise _refusal(message, error) from error
    request_id = request.id
    raw = [memoryview(entry) for entry in request.raw_input_contents]
    request.ClearField("id")
    request.ClearField("raw_input_contents")
    return RequestParts(request.SerializeToString(), request_id, raw)


def _excess(message: bytes) -> WireError:
    return WireError(
        f"{len(message)} bytes came with more than {MAX_FIELDS} fields: no request needs so many"
    )


def _refusal(message: bytes, error: Exception) -> WireError:
    return WireError(
        f"{len(message)} bytes came that are not a serialized inference.ModelInferRequest "
        f"({error}): cut off on the way, or another message?"
    )
