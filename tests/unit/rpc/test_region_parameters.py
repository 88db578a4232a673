"""Where tensors are said to lie in shared memory: read rightly, or refused with a reason."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.errors import RequestError, UnsupportedError
from headrace.regions.part import RegionPart
from headrace.rpc.region_parameters import input_parts, output_parts, part_of, part_parameters
from headrace_proto.v1 import inference_pb2 as pb

REGION, SIZE, OFFSET = "shared_memory_region", "shared_memory_byte_size", "shared_memory_offset"


def parameters(**values: Any) -> dict[str, pb.InferParameter]:
    """Short names and plain values, as clients send them."""
    names = {"region": REGION, "size": SIZE, "offset": OFFSET}
    kinds = {str: "string_param", int: "int64_param", bool: "bool_param", float: "double_param"}
    return {
        names[name]: pb.InferParameter(**{kinds[type(value)]: value})
        for name, value in values.items()
    }


@pytest.mark.parametrize(
    ("sent", "part"),
    [
        (parameters(region="r", size=10), RegionPart("r", 0, 10)),
        (parameters(region="r", size=10, offset=4), RegionPart("r", 4, 10)),
        (parameters(region="r", size=0, offset=0), RegionPart("r", 0, 0)),
        (parameters(region="r", size=(1 << 63) - 1), RegionPart("r", 0, (1 << 63) - 1)),
        ({"colour": pb.InferParameter(string_param="red")}, None),
        ({}, None),
    ],
)
def test_what_clients_send(sent: dict[str, pb.InferParameter], part: RegionPart | None) -> None:
    """The offset is left out when it is 0; what goes back is what a client would send."""
    assert part_of("input 'x'", sent, is_offered=True) == part
    if part is not None:
        back = part_parameters(part, part.size_bytes)
        assert part_of("output 'y'", back, is_offered=True) == part
        assert (OFFSET in back) is (part.offset != 0)


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        (parameters(size=1), "input 'x' lacks the parameter 'shared_memory_region'"),
        (parameters(offset=1), "input 'x' lacks the parameter 'shared_memory_region'"),
        (parameters(region="r"), "input 'x' lacks the parameter 'shared_memory_byte_size'"),
        (parameters(region=7, size=1), "value of type int64, expected string"),
        (parameters(region="r", size="1"), "value of type string, expected int64 or uint64"),
        (parameters(region="r", size=1, offset=1.0), "value of type double, expected int64"),
        (parameters(region="r", size=-1), "of input 'x' is -1, expected 0 to"),
        (parameters(region="r", size=1, offset=-(1 << 63)), "is -9223372036854775808, expected 0"),
        ({**parameters(region="r"), SIZE: pb.InferParameter(uint64_param=1 << 63)}, "expected 0"),
        ({**parameters(region="r"), SIZE: pb.InferParameter()}, "value of type nothing"),
    ],
)
def test_what_is_wrong(sent: dict[str, pb.InferParameter], text: str) -> None:
    """The text names the tensor, the parameter, what came and what was expected."""
    with pytest.raises(RequestError, match=text):
        part_of("input 'x'", sent, is_offered=True)


@pytest.mark.parametrize("name", [REGION, SIZE, OFFSET])
def test_where_it_is_switched_off(name: str) -> None:
    """Each of its parameters is enough to know what is wanted, and the text says what to do."""
    with pytest.raises(UnsupportedError, match=r"Client shared memory is disabled.*'x'.*send the"):
        part_of("input 'x'", {name: pb.InferParameter()}, is_offered=False)
    assert part_of("input 'x'", {"colour": pb.InferParameter()}, is_offered=False) is None


def request() -> pb.ModelInferRequest:
    """Inputs a, b and c, outputs p and q; b and q lie in shared memory."""
    message = pb.ModelInferRequest()
    for name in "abc":
        message.inputs.add(name=name)
    for name in "pq":
        message.outputs.add(name=name)
    for tensor in (message.inputs[1], message.outputs[1]):
        for name, value in parameters(region="r", size=8, offset=4).items():
            tensor.parameters[name].CopyFrom(value)
    return message


def test_tensors_of_a_request() -> None:
    """By place and by name; the others come in the message."""
    message = request()
    assert input_parts(message, is_offered=True) == {1: RegionPart("r", 4, 8)}
    assert output_parts(message, is_offered=True) == {"q": RegionPart("r", 4, 8)}


def test_a_tensor_comes_in_one_way() -> None:
    """Not in the message as well, and no classes are written into memory."""
    message = request()
    message.inputs[1].contents.fp32_contents.append(1.0)
    with pytest.raises(RequestError, match="input 'b' has contents and names a shared memory"):
        input_parts(message, is_offered=True)
    message.outputs[1].parameters["classification"].int64_param = 1
    with pytest.raises(RequestError, match="output 'q' is wanted as classes and in shared memory"):
        output_parts(message, is_offered=True)
