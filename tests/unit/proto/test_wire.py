"""The scan of a request agrees with protobuf's own parser on every message, valid or broken."""

from __future__ import annotations

import mmap
import random

import pytest
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace_proto.v1 import inference_pb2 as pb
from headrace_proto.wire import (
    MAX_BYTES,
    RequestParts,
    WireError,
    delimited,
    join_response,
    parse_request,
    split_request,
)
from helpers.proto_wire import FIELDS, REQUESTS, field, mutate, varint


def _by_protobuf(message: bytes) -> pb.ModelInferRequest | None:
    try:
        return pb.ModelInferRequest.FromString(message)
    except (DecodeError, UnicodeDecodeError):  # the second comes from protobuf in pure Python
        return None


def _joined(head: pb.ModelInferRequest, parts: RequestParts) -> pb.ModelInferRequest:
    whole = pb.ModelInferRequest(
        id=parts.id, raw_input_contents=[bytes(each) for each in parts.raw]
    )
    whole.MergeFrom(head)
    return whole


def _assert_as_protobuf(message: bytes) -> bool:
    """Hold our answer against protobuf's; returns whether both accept the message."""
    expected = _by_protobuf(message)
    try:
        head, parts = parse_request(message)
    except WireError:
        assert expected is None, f"refused {message!r}, which protobuf accepts"
        return False
    assert expected is not None, f"accepted {message!r}, which protobuf refuses"
    assert parts.id == expected.id
    assert [bytes(each) for each in parts.raw] == list(expected.raw_input_contents)
    assert (head.id, len(head.raw_input_contents)) == ("", 0)
    # Compared as bytes, so that NaN equals NaN and unknown fields count too.
    whole = _joined(head, parts)
    assert whole.SerializeToString(deterministic=True) == expected.SerializeToString(
        deterministic=True
    )
    return True


@given(REQUESTS)
def test_what_clients_send_is_split(request: pb.ModelInferRequest) -> None:
    """For every request that protobuf writes, the parts put together are the request."""
    assert _assert_as_protobuf(request.SerializeToString())


@given(REQUESTS, REQUESTS)
def test_messages_behind_each_other_merge(
    one: pb.ModelInferRequest, two: pb.ModelInferRequest
) -> None:
    """Two messages in one are what protobuf makes of them: the last id, all the tensors."""
    assert _assert_as_protobuf(one.SerializeToString() + two.SerializeToString())


@settings(max_examples=1000)
@given(FIELDS)
def test_fields_of_any_kind_and_order(message: bytes) -> None:
    """Unknown fields, groups, other wire types and padded varints end as they do in protobuf."""
    _assert_as_protobuf(message)


@settings(max_examples=500)
@given(st.binary(max_size=64))
@example(b"")
def test_any_bytes_give_a_value_or_a_wire_error(message: bytes) -> None:
    """No bytes make the scan raise anything else, or disagree with protobuf."""
    _assert_as_protobuf(message)


def test_broken_messages_are_refused_as_by_protobuf() -> None:
    """50,000 messages with a few bytes changed: never another error, never another verdict."""
    random_ = random.Random(1)
    verdicts = {True: 0, False: 0}
    for _ in range(50_000):
        verdicts[_assert_as_protobuf(mutate(random_.choice(_SAMPLES), random_))] += 1
    assert min(verdicts.values()) > 2000, verdicts


def test_what_follows_a_large_tensor_is_split_as_by_protobuf() -> None:
    """Long messages are looked at twice."""
    random_ = random.Random(2)
    large = field(7, bytes(150_000))
    verdicts = {True: 0, False: 0}
    for _ in range(300):
        message = large + mutate(random_.choice(_SAMPLES), random_) + random_.choice((b"", large))
        verdicts[_assert_as_protobuf(message)] += 1
    assert min(verdicts.values()) > 10, verdicts


def _sample(num_inputs: int, num_bytes: int, request_id: str) -> bytes:
    request = pb.ModelInferRequest(model_name="mlp", model_version="1", id=request_id)
    request.parameters["timeout"].int64_param = 1000
    for number in range(num_inputs):
        request.inputs.add(name=f"x{number}", datatype="FP32", shape=[1, num_bytes // 4])
        request.raw_input_contents.append(random.Random(number).randbytes(num_bytes))
    request.outputs.add(name="y")
    return request.SerializeToString()


_SAMPLES = [_sample(0, 0, ""), _sample(1, 8, "ü7"), _sample(2, 16, "a"), _sample(3, 200, "")]


@given(st.lists(st.builds(field, st.integers(1, 15).filter(lambda n: n != 3), st.binary())))
def test_head_keeps_its_bytes_and_their_order(fields: list[bytes]) -> None:
    """The head is the message with the tensors and ids left out, byte for byte."""
    message = b"".join(each + field(3, b"id") for each in fields)
    expected = b"".join(each for each in fields if each[0] != 0x3A)
    assert split_request(message).head == expected


def test_tensors_are_views_into_the_message() -> None:
    """No tensor is copied, and none can be written to."""
    message = _sample(2, 600_000, "a")
    parts = split_request(message)
    assert [view.nbytes for view in parts.raw] == [600_000, 600_000]
    assert all(view.obj is message and view.readonly for view in parts.raw)
    assert len(parts.head) < 200


@pytest.mark.parametrize("size", [0, 1, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152])
def test_lengths_at_the_edges_of_a_varint(size: int) -> None:
    """A tensor whose length just fits its number of bytes is found whole."""
    payload = bytes(size)
    message = pb.ModelInferRequest(id="a", raw_input_contents=[payload, b"z"]).SerializeToString()
    assert [bytes(view) for view in split_request(message).raw] == [payload, b"z"]


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(b"\x3a\x05abcd", id="tensor cut off"),
        pytest.param(b"\x3a", id="length missing"),
        pytest.param(b"\x3a\x80\x80", id="length cut off"),
        pytest.param(b"\x3a\xff\xff\xff\xff\x07ab", id="claims 2 GiB - 1"),
        pytest.param(b"\x3a\x80\x80\x80\x80\x08ab", id="claims 2 GiB"),
        pytest.param(b"\x3a" + b"\xff" * 9 + b"\x01", id="claims 16 EiB"),
        pytest.param(b"\x3a" + b"\x80" * 1_000_000, id="length without end"),
        pytest.param(b"\x80" * 1_000_000, id="tag without end"),
        pytest.param(b"\x1a\x02\xc3\x28", id="id is not UTF-8"),
        pytest.param(b"\x1a\x03\xed\xa0\x80\x1a\x01a", id="an earlier id is a lone surrogate"),
        pytest.param(b"\x02\x00", id="field number 0"),
        pytest.param(b"\x3b\x3a\x00", id="group without end"),
        pytest.param(b"\x3c", id="end without group"),
        pytest.param(b"\x3b\x44", id="group ended by another's number"),
        pytest.param(b"\x3e\x00", id="wire type 6"),
        pytest.param(b"\x2a\x02\x0a\x05", id="head field broken inside"),
        pytest.param(b"\x0a\x01\xff", id="model name is not UTF-8"),
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", id="not protobuf at all"),
    ],
)
def test_refusals(message: bytes) -> None:
    """Each is refused with a text that has its size and what was expected."""
    assert _by_protobuf(message) is None
    with pytest.raises(
        WireError, match=rf"^{len(message)} bytes came .*ModelInferRequest .*cut off"
    ):
        parse_request(message)


@pytest.mark.parametrize(
    ("message", "num_raw"),
    [
        pytest.param(b"", 0, id="empty"),
        pytest.param(b"\x3a\x00\x3a\x00", 2, id="empty tensors"),
        pytest.param(b"\x38\x07\x3a\x01a", 1, id="field 7 as a varint is an unknown field"),
        pytest.param(b"\x3b\x3a\x01a\x3c\x3a\x01b", 1, id="a tensor inside a group is unknown"),
        pytest.param(b"\xba\x80\x00\x01a", 1, id="padded tag"),
        pytest.param(b"\x3a\x81\x80\x80\x80\x00a", 1, id="padded length"),
        pytest.param(field(2**29 - 1, b"a") + b"\x3a\x00", 1, id="largest field number"),
        pytest.param(varint(9 << 3) + b"\xff" * 9 + b"\x01", 0, id="largest varint"),
    ],
)
def test_unusual_but_valid(message: bytes, num_raw: int) -> None:
    """What no client sends but protobuf accepts is accepted, with the same tensors."""
    assert _assert_as_protobuf(message)
    assert len(split_request(message).raw) == num_raw


@given(st.lists(st.binary(max_size=300), max_size=4), st.text(max_size=200))
def test_response_is_what_protobuf_writes(raw: list[bytes], request_id: str) -> None:
    """Head and tensors joined are the bytes that protobuf would serialise."""
    response = pb.ModelInferResponse(model_name="m", model_version="1", id=request_id)
    for number in range(len(raw)):
        response.outputs.add(name=f"y{number}", datatype="UINT8", shape=[-1])
    head = response.SerializeToString()
    response.raw_output_contents.extend(raw)
    kinds = (bytes, bytearray, memoryview)
    buffers = [kinds[number % 3](each) for number, each in enumerate(raw)]
    assert join_response(head, buffers) == response.SerializeToString()


def test_response_counts_bytes_not_elements() -> None:
    """A view of wider elements, in several dimensions, goes out whole."""
    view = memoryview(bytes(range(24))).cast("H", (3, 4))
    response = pb.ModelInferResponse.FromString(join_response(b"", [view]))
    assert list(response.raw_output_contents) == [bytes(range(24))]


def test_response_too_large_is_refused_before_it_is_built() -> None:
    """Over 2 GiB the text says how many bytes; no memory is touched for it."""
    with mmap.mmap(-1, MAX_BYTES) as huge:  # pages that are never written take no memory
        view = memoryview(huge)
        with pytest.raises(WireError, match=rf"{MAX_BYTES + 6} bytes.*holds {MAX_BYTES}"):
            join_response(b"", [view])
        view.release()


@pytest.mark.parametrize("number", [1, 6, 15, 16, 2047, 2048])
@pytest.mark.parametrize("size", [0, 127, 128, 70_000])
def test_delimited_starts_a_field(number: int, size: int) -> None:
    """The prefix and its payload are one field of that number and size."""
    unknown = UnknownFieldSet(
        pb.ServerLiveRequest.FromString(delimited(number, size) + bytes(size))
    )
    assert len(unknown) == 1
    assert (unknown[0].field_number, unknown[0].data) == (number, bytes(size))
