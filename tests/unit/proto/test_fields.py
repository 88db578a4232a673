"""Requests of more parts than any has are known before protobuf makes something of each part."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_proto.fields import FREE_BYTES, NESTED, has_more_fields
from headrace_proto.v1 import inference_pb2 as pb
from headrace_proto.wire import MAX_FIELDS, WireError, split_request
from helpers.proto_wire import REQUESTS, field, varint

MOST = 10_000
EMPTY_RAW = field(7, b"")
ODD = varint(100 << 3) + varint(1)  # a field that is no tensor and no text: protobuf reads it all

weighs_more = partial(has_more_fields, free_bytes=0)


def of_input(more: bytes) -> bytes:
    """A request with one input, which has this in it."""
    return field(1, b"m") + field(5, field(1, b"x") + more)


def varints(count: int, size: int = 1) -> bytes:
    """So many of so many bytes."""
    return varint(1, num_bytes=size) * count


# What makes a request of so many parts, by what they are, and how many weigh as much as a field.
PARTS: dict[str, tuple[Callable[[int], bytes], float]] = {
    "raw tensors": (lambda count: EMPTY_RAW * count, 1),
    "inputs": (lambda count: field(5, b"") * count, 1 / NESTED),
    "outputs": (lambda count: field(6, b"") * count, 1 / NESTED),
    "parameters": (lambda count: field(4, b"") * count, 1 / NESTED),
    "unknown fields": (lambda count: ODD * count, 1),
    "groups": (lambda count: (varint(99 << 3 | 3) + varint(99 << 3 | 4)) * count, 1),
    "fixed fields": (lambda count: (varint(99 << 3 | 5) + bytes(4)) * count, 1),
    "an input's parameters": (lambda count: of_input(field(4, b"") * count), 1 / NESTED),
    "fields of a parameter": (lambda count: of_input(field(4, field(1, b"") * count)), 1),
    "an output's parameters": (lambda count: field(6, field(3, b"") * count), 1 / NESTED),
    "dimensions": (lambda count: of_input(field(3, varints(count))), 1),
    "dimensions, one by one": (lambda count: of_input((b"\x18\1") * count), 1),
    "long tags": (lambda count: (b"\xba\0" + b"\0") * count, 1),
    "numbers": (lambda count: of_input(field(5, field(2, varints(count)))), 16),
    "strings": (lambda count: of_input(field(5, field(8, b"") * count)), 1),
    "longer strings": (lambda count: of_input(field(5, field(8, bytes(200)) * count)), 1),
    "what no tensor has": (lambda count: of_input(field(5, field(9, b"") * count)), 1),
}


@pytest.mark.parametrize("what", PARTS)
def test_too_many_are_found(what: str) -> None:
    """However deep they lie; a sixth of that is not too many."""
    make, weight = PARTS[what]
    assert weighs_more(make(int(2 * MOST * weight)), MOST)
    assert not weighs_more(make(int(MOST * weight) // 3), MOST)


@pytest.mark.parametrize(
    "contents",
    [
        {"fp32_contents": [0.5] * 1_000_000},
        {"bytes_contents": [bytes(100_000)] * 100},
        {"bytes_contents": [b"hello world, and all who are in it"] * (MOST - 100)},
        {"bytes_contents": [bytes(300)] * (MOST - 100)},
        {"int_contents": [255] * (MOST * 7)},
    ],
    ids=["floats", "files", "texts", "lines", "pixels"],
)
def test_what_clients_send_typed_is_not_too_much(contents: dict[str, list[object]]) -> None:
    """Large tensors, or many texts."""
    request = pb.ModelInferRequest(model_name="m")
    request.inputs.add(name="x", contents=pb.InferTensorContents(**contents))  # type: ignore[arg-type]
    assert not weighs_more(request.SerializeToString(), MOST)


def test_what_is_short_is_not_looked_at() -> None:
    """It is parsed sooner."""
    count = (FREE_BYTES - 20) // 2
    assert not has_more_fields(of_input(field(8, b"") * count), 1)
    assert has_more_fields(of_input(field(8, b"") * (count + 20)), 1)


@given(REQUESTS)
def test_usual_requests_have_few(request: pb.ModelInferRequest) -> None:
    """No more than there are bytes, and none is refused that has as many as there may be."""
    message = request.SerializeToString()
    assert not weighs_more(message, NESTED * len(message))


@given(st.binary(max_size=80), st.integers(1, 9))
def test_any_bytes_are_borne(message: bytes, most: int) -> None:
    """And what comes before the place where they break counts."""
    answer = weighs_more(message, most)
    assert answer is weighs_more(message, most)
    assert weighs_more(EMPTY_RAW * (most + 1) + message, most)
    assert weighs_more(of_input(field(4, b"") * most) + message, most)


def test_a_field_that_overruns_the_message_holds_nothing() -> None:
    """Protobuf refuses it at its length."""
    assert not weighs_more(b"\x2a\x7f" + b"\x22\x00" * 3, 3)


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


def test_what_lies_in_a_tensor_is_not_counted() -> None:
    """Also behind a field whose tag has two bytes, as a newer protocol may have."""
    zeros = field(7, bytes(200_000))
    message = zeros + field(16, bytes(200_000)) + zeros
    assert [len(each) for each in split_request(message).raw] == [200_000, 200_000]


def test_beside_an_odd_field_a_tensor_may_be_as_large() -> None:
    """Protobuf reads such a message whole: what is within its fields is not of its own."""
    texts = pb.InferTensorContents(bytes_contents=[b"text"] * 2 * MAX_FIELDS)
    request = pb.ModelInferRequest(model_name="m")
    request.inputs.add(name="x", contents=texts)
    assert len(split_request(request.SerializeToString() + ODD).head) > 12 * MAX_FIELDS
    many = of_input(field(5, field(8, b"") * 4 * MAX_FIELDS))
    with pytest.raises(WireError, match="more than"):
        split_request(many + ODD)


@pytest.mark.parametrize("size", [1_000, 30_000])
def test_tensors_by_the_thousand_are_split(size: int) -> None:
    """More than fit into what is scanned without a count, and fewer than there may be."""
    raw = [bytes([number % 256]) * size for number in range(2_000)]
    message = b"".join(field(5, b"") + field(7, each) for each in raw) + field(3, b"a")
    parts = split_request(message)
    assert parts.raw == raw
    assert (parts.head, parts.id) == (field(5, b"") * 2_000, "a")
