"""Requests of more parts than any has are known before protobuf makes something of each part."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_proto.fields import has_more_fields
from headrace_proto.v1 import inference_pb2 as pb
from headrace_proto.wire import MAX_FIELDS, WireError, split_request
from helpers.proto_wire import REQUESTS, field, varint

MOST = 10_000
EMPTY_RAW = field(7, b"")
ODD = varint(100 << 3) + varint(1)  # a field that is no tensor and no text: protobuf reads it all
FEW = 5_000  # strings of a tensor that are looked at one by one, and some more


def of_input(more: bytes) -> bytes:
    """A request with one input, which has this in it."""
    return field(1, b"m") + field(5, field(1, b"x") + more)


def varints(count: int, size: int = 1) -> bytes:
    """So many of so many bytes."""
    return varint(1, num_bytes=size) * count


# What makes a request of so many parts, by what they are, and how many weigh as much as a field.
PARTS: dict[str, tuple[Callable[[int], bytes], int]] = {
    "raw tensors": (lambda count: EMPTY_RAW * count, 1),
    "inputs": (lambda count: field(5, b"") * count, 1),
    "outputs": (lambda count: field(6, b"") * count, 1),
    "parameters": (lambda count: field(4, b"") * count, 1),
    "unknown fields": (lambda count: ODD * count, 1),
    "groups": (lambda count: (varint(99 << 3 | 3) + varint(99 << 3 | 4)) * count, 1),
    "fixed fields": (lambda count: (varint(99 << 3 | 5) + bytes(4)) * count, 1),
    "an input's parameters": (lambda count: of_input(field(4, b"") * count), 1),
    "fields of a parameter": (lambda count: of_input(field(4, field(1, b"") * count)), 1),
    "an output's parameters": (lambda count: field(6, field(3, b"") * count), 1),
    "dimensions": (lambda count: of_input(field(3, varints(count))), 1),
    "dimensions, one by one": (lambda count: of_input((b"\x18\1") * count), 1),
    "long tags": (lambda count: (b"\xba\0" + b"\0") * count, 1),
    "numbers": (lambda count: of_input(field(5, field(2, varints(count)))), 16),
    "strings": (lambda count: of_input(field(5, field(8, b"") * count)), 32),
}


@pytest.mark.parametrize("what", PARTS)
def test_too_many_are_found(what: str) -> None:
    """However deep they lie; a sixth of that is not too many."""
    make, weight = PARTS[what]
    assert has_more_fields(make(2 * MOST * weight + FEW), MOST)
    assert not has_more_fields(make(MOST * weight // 3), MOST)


@pytest.mark.parametrize(
    "contents",
    [
        {"fp32_contents": [0.5] * 1_000_000},
        {"bytes_contents": [bytes(100_000)] * 100},
        {"bytes_contents": [b"hello world, and all who are in it"] * (MOST - 100)},
        {"int_contents": [255] * (MOST * 7)},
    ],
    ids=["floats", "files", "texts", "pixels"],
)
def test_what_clients_send_typed_is_not_too_much(contents: dict[str, list[object]]) -> None:
    """Large tensors, or many texts."""
    request = pb.ModelInferRequest(model_name="m")
    request.inputs.add(name="x", contents=pb.InferTensorContents(**contents))  # type: ignore[arg-type]
    assert not has_more_fields(request.SerializeToString(), MOST)


@given(REQUESTS)
def test_usual_requests_have_few(request: pb.ModelInferRequest) -> None:
    """No more than bytes by two, and none is refused that has as many as there may be."""
    message = request.SerializeToString()
    assert not has_more_fields(message, len(message))


@given(st.binary(max_size=80), st.integers(1, 9))
def test_any_bytes_are_borne(message: bytes, most: int) -> None:
    """And what comes before the place where they break counts."""
    answer = has_more_fields(message, most)
    assert answer is has_more_fields(message, most)
    assert has_more_fields(EMPTY_RAW * (most + 1) + message, most)
    assert has_more_fields(of_input(field(4, b"") * most) + message, most)


def test_a_field_that_overruns_the_message_holds_nothing() -> None:
    """Protobuf refuses it at its length."""
    assert not has_more_fields(b"\x2a\x7f" + b"\x22\x00" * 3, 3)


@pytest.mark.parametrize(
    "before", [b"", field(7, bytes(200_000)), ODD], ids=["small", "behind a large one", "odd"]
)
def test_a_request_is_split_into_no_more(before: bytes) -> None:
    """By the scan, and by protobuf where that has to do it."""
    count = MAX_FIELDS - bool(before)
    num_raw = count + (len(before) > 200_000)
    assert len(split_request(before + EMPTY_RAW * count).raw) == num_raw
    with pytest.raises(WireError, match="with more than 65536 fields"):
        split_request(before + EMPTY_RAW * (count + 1))
