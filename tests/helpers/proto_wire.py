"""Serialized requests for tests: as clients send them, as protobuf allows them, and broken ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import strategies as st

from headrace_proto.v1 import inference_pb2 as pb

if TYPE_CHECKING:
    import random

_WORDS = st.text(max_size=12)

_PARAMETERS = st.dictionaries(
    _WORDS,
    st.one_of(
        st.builds(pb.InferParameter, bool_param=st.booleans()),
        st.builds(pb.InferParameter, int64_param=st.integers(-(2**63), 2**63 - 1)),
        st.builds(pb.InferParameter, string_param=_WORDS),
        st.builds(pb.InferParameter, double_param=st.floats()),
        st.builds(pb.InferParameter, uint64_param=st.integers(0, 2**64 - 1)),
    ),
    max_size=3,
)

_INPUTS = st.builds(
    pb.ModelInferRequest.InferInputTensor,
    name=_WORDS,
    datatype=_WORDS,
    shape=st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4),
    parameters=_PARAMETERS,
    contents=st.none() | st.builds(pb.InferTensorContents, bytes_contents=st.lists(st.binary())),
)

_OUTPUTS = st.builds(
    pb.ModelInferRequest.InferRequestedOutputTensor, name=_WORDS, parameters=_PARAMETERS
)

REQUESTS = st.builds(
    pb.ModelInferRequest,
    model_name=_WORDS,
    model_version=_WORDS,
    id=_WORDS,
    parameters=_PARAMETERS,
    inputs=st.lists(_INPUTS, max_size=3),
    outputs=st.lists(_OUTPUTS, max_size=3),
    raw_input_contents=st.lists(st.binary(max_size=300), max_size=4),
)


def varint(value: int, *, num_bytes: int = 0) -> bytes:
    """Encode a varint, padded to at least `num_bytes` as no sane writer would."""
    groups: list[int] = []
    while value > 0x7F or len(groups) + 1 < num_bytes:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*groups, value])


def field(number: int, payload: bytes) -> bytes:
    """Encode a length-delimited field."""
    return varint(number << 3 | 2) + varint(len(payload)) + payload


_VARINT_BYTES = st.integers(0, 11)  # 10 is the longest that is valid

# One field in bytes, as `(length-delimited, number, bytes)` does not matter to protobuf's order.
_LENGTH_DELIMITED = st.builds(field, st.integers(1, 20), st.binary(max_size=200))
_IDS = st.builds(lambda text: field(3, text.encode()), _WORDS)
_PADDED = st.builds(
    lambda number, payload, tag_bytes, length_bytes: (
        varint(number << 3 | 2, num_bytes=tag_bytes)
        + varint(len(payload), num_bytes=length_bytes)
        + payload
    ),
    st.sampled_from((0, 3, 7, 9, 2**29 - 1, 2**29)),
    st.binary(max_size=20),
    _VARINT_BYTES,
    _VARINT_BYTES,
)
_VARINTS = st.builds(
    lambda number, value, num_bytes: varint(number << 3) + varint(value, num_bytes=num_bytes),
    st.integers(0, 20),
    st.integers(0, 2**70),
    _VARINT_BYTES,
)
_FIXED = st.builds(
    lambda number, raw: varint(number << 3 | 5) + raw,
    st.integers(1, 20),
    st.binary(min_size=4, max_size=4),
)
_FIXED64 = st.builds(
    lambda number, raw: varint(number << 3 | 1) + raw,
    st.integers(1, 20),
    st.binary(min_size=8, max_size=8),
)


def _group(number: int, inside: list[bytes], end_number: int) -> bytes:
    return varint(number << 3 | 3) + b"".join(inside) + varint(end_number << 3 | 4)


_PLAIN = st.one_of(_LENGTH_DELIMITED, _IDS, _PADDED, _VARINTS, _FIXED, _FIXED64)
_GROUPS = st.recursive(
    _PLAIN,
    lambda inner: st.one_of(
        st.builds(
            lambda n, inside: _group(n, inside, n), st.integers(1, 9), st.lists(inner, max_size=3)
        ),
        st.builds(_group, st.integers(0, 9), st.lists(inner, max_size=2), st.integers(0, 9)),
    ),
    max_leaves=6,
)

# Fields of every wire type and number in any order: many are valid, many are not.
FIELDS = st.lists(_PLAIN | _GROUPS, max_size=8).map(b"".join)


def mutate(message: bytes, random_: random.Random) -> bytes:
    """Break a message in one to four places: change, drop, repeat or insert bytes, or cut."""
    broken = bytearray(message)
    for _ in range(random_.randint(1, 4)):
        at = random_.randrange(len(broken) + 1)
        size = random_.choice((1, 1, 1, 2, 5, 17))
        match random_.randrange(6):
            case 0 | 1:
                broken[at : at + 1] = bytes([random_.randrange(256)])
            case 2:
                del broken[at : at + size]
            case 3:
                broken[at:at] = broken[at : at + size]
            case 4:
                broken[at:at] = random_.randbytes(size)
            case 5:
                del broken[at:]
    return bytes(broken)
