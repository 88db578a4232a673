"""Whatever a request holds, what is said of it is short and on one line."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headrace.errors import HeadraceError
from headrace.rpc.prepare import Limits, Preparer
from headrace_proto.v1 import inference_pb2 as pb
from headrace_proto.wire import split_request
from helpers.served import catalog_of, served

LONG = "x\n\x1b" * 3000
MAX_CHARS = 500
CATALOG = catalog_of(served("x FP32[?,2]", "y FP32[?,2]", "max_batch_size: 4"))


def right() -> pb.ModelInferRequest:
    request = pb.ModelInferRequest(model_name="m", raw_input_contents=[bytes(8)])
    request.inputs.add(name="x", datatype="FP32", shape=[1, 2])
    request.outputs.add(name="y")
    return request


def renamed_twice(request: pb.ModelInferRequest) -> None:
    for _ in range(2):
        request.inputs.add(name=LONG, datatype="FP32", shape=[1, 2])


def classes_of_a_long_name(request: pb.ModelInferRequest) -> None:
    request.outputs[0].name = LONG
    request.outputs[0].parameters["classification"].bool_param = True


def region_of_an_output(request: pb.ModelInferRequest) -> None:
    request.outputs[0].name = LONG
    request.outputs[0].parameters["shared_memory_region"].string_param = LONG


def in_region(request: pb.ModelInferRequest) -> None:
    request.inputs[0].name = LONG
    request.inputs[0].parameters["shared_memory_region"].string_param = LONG


SPOILS: dict[str, Callable[[pb.ModelInferRequest], object]] = {
    "model": lambda r: setattr(r, "model_name", LONG),
    "version": lambda r: setattr(r, "model_version", LONG),
    "input": lambda r: setattr(r.inputs[0], "name", LONG),
    "inputs of one name": renamed_twice,
    "datatype": lambda r: setattr(r.inputs[0], "datatype", LONG),
    "output": lambda r: setattr(r.outputs[0], "name", LONG),
    "reserved parameter": lambda r: r.parameters["triton_" + LONG].SetInParent(),
    "parameter of no type": lambda r: r.parameters[LONG].SetInParent(),
    "source": lambda r: setattr(r.parameters["stream_id"], "string_param", LONG),
    "region": in_region,
    "classes of a long name": classes_of_a_long_name,
    "region of an output": region_of_an_output,
}


@pytest.mark.parametrize("what", SPOILS)
def test_no_text_of_a_request_is_repeated_in_full(what: str) -> None:
    """Enough of it to know it by, escaped."""
    request = right()
    SPOILS[what](request)
    parts = split_request(request.SerializeToString())
    with pytest.raises(HeadraceError) as caught:
        Preparer(CATALOG, Limits()).prepare(parts.head, parts.raw)
    assert len(str(caught.value)) <= MAX_CHARS
    assert str(caught.value).isprintable()
