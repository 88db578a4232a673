"""ModelInfer on the wire, held against protobuf with another project's message definitions."""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.grpc import service_pb2

from headrace_client import InvalidInput, InvalidReply
from headrace_client.message import Parameter, decode_reply, encode_request

PARAMETERS: dict[str, tuple[Parameter, str]] = {
    "yes": (True, "bool_param"),
    "small": (-3, "int64_param"),
    "large": (2**63, "uint64_param"),
    "real": (0.5, "double_param"),
    "text": ("wörd", "string_param"),
}


def reply_of(tensors: dict[str, tuple[str, tuple[int, ...], bytes]], **fields: Any) -> Any:
    """Build a reply with raw tensors by protobuf."""
    reply = service_pb2.ModelInferResponse(**fields)
    for name, (datatype, shape, raw) in tensors.items():
        reply.outputs.add(name=name, datatype=datatype, shape=shape)
        reply.raw_output_contents.append(raw)
    return reply


def test_request_is_what_protobuf_reads() -> None:
    """Every part of a request stands where the protocol has it, tensors in the inputs' order."""
    first, second = np.arange(6, dtype=np.float32).reshape(2, 3), np.array([["a"]])
    message = encode_request(
        "digits",
        {"x": first, "s": second},
        outputs=["b", "a"],
        version="7",
        request_id="nr 1",
        parameters={name: value for name, (value, _) in PARAMETERS.items()},
    )
    request = service_pb2.ModelInferRequest.FromString(message)
    assert (request.model_name, request.model_version, request.id) == ("digits", "7", "nr 1")
    inputs = [(each.name, each.datatype, list(each.shape)) for each in request.inputs]
    assert inputs == [("x", "FP32", [2, 3]), ("s", "BYTES", [1, 1])]
    assert list(request.raw_input_contents) == [first.tobytes(), struct.pack("<I", 1) + b"a"]
    assert [output.name for output in request.outputs] == ["b", "a"]
    for name, (value, choice) in PARAMETERS.items():
        assert request.parameters[name].WhichOneof("parameter_choice") == choice
        assert getattr(request.parameters[name], choice) == value


@given(st.dictionaries(st.text(), st.binary(max_size=400), max_size=4), st.text(), st.text())
def test_any_request_is_what_protobuf_reads(
    tensors: dict[str, bytes], request_id: str, version: str
) -> None:
    """Names, ids and sizes of any kind come out as they went in."""
    arrays = {name: np.frombuffer(raw, np.uint8) for name, raw in tensors.items()}
    message = encode_request("m", arrays, request_id=request_id, version=version)
    request = service_pb2.ModelInferRequest.FromString(message)
    assert (request.id, request.model_version) == (request_id, version)
    assert [(each.name, list(each.shape)) for each in request.inputs] == [
        (name, [len(raw)]) for name, raw in tensors.items()
    ]
    assert list(request.raw_input_contents) == list(tensors.values())


def test_outputs_with_parameters() -> None:
    """A mapping of outputs carries each one's parameters."""
    message = encode_request("m", {}, outputs={"scores": {"classification": 3}, "label": {}})
    scores, label = service_pb2.ModelInferRequest.FromString(message).outputs
    assert scores.parameters["classification"].int64_param == 3
    assert (label.name, len(label.parameters)) == ("label", 0)


@pytest.mark.parametrize("value", [None, [1], b"bytes"])
def test_parameters_of_no_type_of_the_protocol(value: Any) -> None:
    """A parameter is a bool, an int, a float or a string."""
    with pytest.raises(InvalidInput, match=f"'p' is a {type(value).__name__}; expected bool, int"):
        encode_request("m", {}, parameters={"p": value})


@pytest.mark.parametrize("value", [2**64, -(2**63) - 1])
def test_integers_beyond_the_protocol(value: int) -> None:
    """An integer of more than 64 bits is refused, not cut."""
    with pytest.raises(InvalidInput, match="64 bits"):
        encode_request("m", {}, parameters={"p": value})


def test_a_request_of_more_than_2_gib(tmp_path: Path) -> None:
    """What gRPC cannot carry is refused before it is put together."""
    huge = np.memmap(tmp_path / "sparse", np.uint8, "w+", shape=2**31)
    with pytest.raises(InvalidInput, match="gRPC carries 2147483647"):
        encode_request("m", {"x": huge})


@pytest.mark.parametrize("argument", [{"version": 1}, {"request_id": b"\xff"}, {"outputs": [3]}])
def test_names_are_strings(argument: dict[str, Any]) -> None:
    """A number where a string belongs is refused as the caller's mistake."""
    with pytest.raises(InvalidInput, match="must be strings"):
        encode_request("m", {}, **argument)


def test_reply_with_everything() -> None:
    """A reply becomes arrays in its own order, with all that it says beside them."""
    floats, labels = np.arange(6, dtype="<f4"), [b"one", b""]
    framed = b"".join(struct.pack("<I", len(label)) + label for label in labels)
    reply = reply_of(
        {
            "b": ("FP32", (2, 3), floats.tobytes()),
            "a": ("BYTES", (2, 1), framed),
            "h": ("BF16", (1,), b"\x80\x3f"),
        },
        model_name="m",
        model_version="4",
        id="nr 1",
    )
    for name, (value, choice) in PARAMETERS.items():
        setattr(reply.parameters[name], choice, value)
    result = decode_reply(reply.SerializeToString())
    assert list(result.outputs) == ["b", "a", "h"]
    assert np.array_equal(result.outputs["b"], floats.reshape(2, 3))
    assert result.outputs["a"].tolist() == [[b"one"], [b""]]
    assert result.outputs["h"].tolist() == [0x3F80]
    assert result.datatypes == {"b": "FP32", "a": "BYTES", "h": "BF16"}
    assert (result.model_name, result.model_version, result.request_id) == ("m", "4", "nr 1")
    assert result.parameters == {name: value for name, (value, _) in PARAMETERS.items()}


def test_outputs_are_views_of_the_reply() -> None:
    """Reading a reply copies no tensor, and the caller cannot write into it."""
    reply = reply_of({"y": ("FP64", (500,), bytes(4000))}).SerializeToString()
    array = decode_reply(reply).outputs["y"]
    assert np.shares_memory(array, np.frombuffer(reply, np.uint8))
    assert not array.flags.writeable


@given(
    st.lists(st.tuples(st.text(), st.binary(max_size=300)), max_size=4, unique_by=lambda t: t[0]),
    st.binary(max_size=12),
    st.booleans(),
)
def test_any_reply_is_what_protobuf_reads(
    pairs: list[tuple[str, bytes]], unknown: bytes, has_long_tag: bool
) -> None:
    """Raw tensors come out whole, whatever unknown fields stand before and after."""
    reply = reply_of({name: ("UINT8", (len(raw),), raw) for name, raw in pairs}, id="first")
    before = struct.pack("<BB", (15 << 3) | 2, len(unknown)) + unknown
    after = service_pb2.ModelInferResponse(id="last").SerializeToString()
    long_tag = b"\xf8\x01\x05" if has_long_tag else b""  # field 31, a varint
    result = decode_reply(before + reply.SerializeToString() + after + long_tag)
    assert result.request_id == "last"
    assert {name: bytes(array) for name, array in result.outputs.items()} == dict(pairs)


@given(st.binary(max_size=200))
def test_garbage_is_an_invalid_reply(message: bytes) -> None:
    """Bytes that are no reply give the one error for it, or what protobuf makes of them."""
    try:
        result = decode_reply(message)
    except InvalidReply:
        return
    assert result.model_name == service_pb2.ModelInferResponse.FromString(message).model_name


def test_typed_values() -> None:
    """A server that answers in typed values, not in raw bytes, is understood."""
    reply = service_pb2.ModelInferResponse()
    for name, datatype, contents, values in (
        ("i", "INT8", "int_contents", [-1, 127]),
        ("f", "FP32", "fp32_contents", [0.5, math.inf]),
        ("s", "BYTES", "bytes_contents", [b"x", b""]),
    ):
        output = reply.outputs.add(name=name, datatype=datatype, shape=[2])
        getattr(output.contents, contents).extend(values)
    outputs = decode_reply(reply.SerializeToString()).outputs
    assert outputs["i"].dtype == np.int8
    assert [array.tolist() for array in outputs.values()] == [
        [-1, 127],
        [0.5, math.inf],
        [b"x", b""],
    ]


@pytest.mark.parametrize(
    ("tensor", "text"),
    [
        (("FP32", (3,), b"\0" * 8), "8 bytes"),
        (("FLOAT", (1,), b"\0" * 4), "'FLOAT' is unknown"),
        (("FP32", (-1,), b""), "-1"),
        (("BYTES", (2,), b"\1\0\0\0a"), "element 1 of 2"),
    ],
)
def test_a_reply_that_contradicts_itself(
    tensor: tuple[str, tuple[int, ...], bytes], text: str
) -> None:
    """A tensor that is not what the reply says of it is never handed on."""
    with pytest.raises(InvalidReply, match=f"output 'y' of the reply: .*{text}"):
        decode_reply(reply_of({"y": tensor}).SerializeToString())


def test_fewer_tensors_than_outputs() -> None:
    """A reply that lost a tensor is refused."""
    reply = reply_of({"y": ("UINT8", (1,), b"a")})
    reply.outputs.add(name="z", datatype="UINT8", shape=[1])
    with pytest.raises(InvalidReply, match="2 outputs, but 1 raw tensors"):
        decode_reply(reply.SerializeToString())
