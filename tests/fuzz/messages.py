"""Bodies that are given the bytes of messages: any answer but a value or a known error is a bug."""

from __future__ import annotations

import zlib
from functools import cache

import numpy as np
from google.protobuf.message import DecodeError

from headrace.errors import HeadraceError, RequestError
from headrace.rpc.inflate import inflated_to
from headrace.rpc.prepare import Limits, Preparer
from headrace_proto.datatypes import DATATYPES
from headrace_proto.tensors import TensorError, contents_to_raw, from_raw, to_raw
from headrace_proto.v1 import inference_pb2 as pb
from headrace_proto.wire import WireError, parse_request, split_request
from helpers.served import catalog_of, served

_EITHER = zlib.MAX_WBITS | 32
_LIMIT_BYTES = 100_000  # above what is unpacked at one go, so that pieces are joined


def wire(data: bytes) -> None:
    """Taking a request apart says what protobuf's own parser says, or both refuse."""
    try:
        expected = pb.ModelInferRequest.FromString(data)
    except (DecodeError, UnicodeDecodeError):
        expected = None
    try:
        head, parts = parse_request(data)
    except WireError:
        assert expected is None, "refused what protobuf takes"
        return
    assert expected is not None, "took what protobuf refuses"
    assert (head.id, len(head.raw_input_contents)) == ("", 0)
    whole = pb.ModelInferRequest(
        id=parts.id, raw_input_contents=[bytes(each) for each in parts.raw]
    )
    whole.MergeFrom(head)
    # As bytes, so that NaN equals NaN and unknown fields count too.
    ours, theirs = (each.SerializeToString(deterministic=True) for each in (whole, expected))
    assert ours == theirs


def tensors(data: bytes) -> None:
    """Bytes become the tensor that they are, or a TensorError; typed contents as well.

    The first byte is the datatype, the second the number of elements, the rest the tensor.
    """
    if len(data) < 2:
        return
    datatype, num_elements, rest = _NAMES[data[0] % len(_NAMES)], data[1], data[2:]
    try:
        array = from_raw(rest, datatype, (num_elements,))
    except TensorError:
        pass
    else:
        assert array.shape == (num_elements,)
        assert not array.flags.writeable
        if datatype != "BOOL":  # any byte but 0 is true there
            assert bytes(to_raw(array, datatype)) == rest
    try:
        contents = pb.InferTensorContents.FromString(rest)
        raw = contents_to_raw(contents, datatype, num_elements)
    except (DecodeError, UnicodeDecodeError, TensorError):
        return
    values = getattr(contents, DATATYPES[datatype].contents_field or "")
    assert len(values) == num_elements
    if datatype == "BYTES":
        assert list(from_raw(raw, datatype, (num_elements,))) == list(values)
    else:
        expected = np.asarray(list(values), DATATYPES[datatype].numpy).tobytes()
        # A NaN may change its bits on the way through Python's floats.
        assert raw == expected or datatype == "FP32"


def request(data: bytes) -> None:
    """A request is laid out for its model, or refused; and a second time like the first."""
    try:
        parts = split_request(data)
    except WireError:
        return
    first, second = (_prepared(parts.head, parts.raw) for _ in range(2))
    assert first == second


def inflate(data: bytes) -> None:
    """What is packed comes out whole, or is refused: broken, cut off, too much, more behind it."""
    stream = zlib.decompressobj(_EITHER)
    expected: bytes | None
    try:
        expected = stream.decompress(data, _LIMIT_BYTES + 1)
        is_right = stream.eof and not stream.unused_data
    except zlib.error:
        expected, is_right = b"", False
    is_too_much = len(expected) > _LIMIT_BYTES
    try:
        came = inflated_to(data, _LIMIT_BYTES)
    except RequestError:
        assert not is_right or is_too_much, "refused what zlib takes"
    else:
        assert came is None if is_too_much else (is_right and came == expected)


_NAMES = sorted(DATATYPES)
_Answer = tuple[str, object]


@cache
def _preparer() -> Preparer:
    pair = served("a FP32[?,4] b INT32[?,2]", "p FP32[?,4] q INT32[?,2]", "max_batch_size: 8")
    text = served("c BYTES[?,1]", "d BYTES[?,1]", "max_batch_size: 8", name="t")
    free = served("x UINT8[?,?]", "y UINT8[?,?]", name="f")
    return Preparer(catalog_of(pair, text, free), Limits(max_tensors=16, max_elements=1 << 20))


def _prepared(head: bytes, raw: list[memoryview]) -> _Answer:
    try:
        prepared, taken = _preparer().prepare(head, raw)
        prepared.layout_of(taken)
    except HeadraceError as error:
        return type(error).__name__, str(error)
    sizes = [len(tensor) for tensor in taken]
    assert len(sizes) == len(prepared.sizes)
    return prepared.served.spec.name, (prepared.shapes, prepared.rows, sizes)
