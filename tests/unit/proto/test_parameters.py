"""Parameters are taken out of a request's head, and nothing else changes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_proto.parameters import take_parameters
from headrace_proto.v1 import inference_pb2 as pb
from headrace_proto.wire import split_request
from helpers.proto_wire import REQUESTS, field, varint

NAMES = (b"sequence_id", b"sequence_end")
ID = field(4, field(1, b"sequence_id") + field(2, b"\x10\7"))
OTHER = field(4, field(1, b"sequence_ids") + field(2, b"\x10\7"))


@given(REQUESTS, st.integers(), st.booleans())
def test_what_is_taken_and_what_remains_are_the_head(
    request: pb.ModelInferRequest, number: int, has_end: bool
) -> None:
    """Put together by protobuf; what is taken has these parameters alone."""
    request.parameters["sequence_id"].int64_param = number % 2**62
    if has_end:
        request.parameters["sequence_end"].bool_param = True
    head = split_request(request.SerializeToString()).head
    split = take_parameters(head, NAMES)
    assert split is not None
    remains, taken = map(pb.ModelInferRequest.FromString, split)
    expected = pb.ModelInferRequest(parameters=taken.parameters)
    assert taken == expected
    assert set(taken.parameters) == {"sequence_id"} | ({"sequence_end"} if has_end else set())
    assert taken.parameters.keys().isdisjoint(remains.parameters)
    remains.MergeFrom(taken)
    assert remains == pb.ModelInferRequest.FromString(head)


@given(st.binary(max_size=60))
def test_any_bytes_are_borne(head: bytes) -> None:
    """They are split at fields or not at all."""
    split = take_parameters(ID + head, NAMES)
    if split is not None:
        assert sorted(b"".join(split)) == sorted(ID + head)


@pytest.mark.parametrize(
    "head",
    [
        OTHER,
        field(4, field(2, b"\x10\7") + field(1, b"sequence_id")),
        field(5, field(1, b"sequence_end")),
        ID + varint(100 << 3) + varint(1),
        ID + field(4, b"")[:1],
        ID + b"\x22\x82\x80\x00\x00\x00",
    ],
    ids=["longer", "value first", "an input", "odd", "cut off", "a long length"],
)
def test_what_cannot_be_told_at_a_glance_is_left(head: bytes) -> None:
    """The whole head is then looked at by protobuf."""
    assert take_parameters(head, NAMES) is None
