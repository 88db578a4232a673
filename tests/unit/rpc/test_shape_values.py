"""Requests to models with shape tensors: the layout follows the values, head kept or not."""

from __future__ import annotations

import struct

from headrace.rpc.prepare import Limits, Preparer
from headrace_proto.v1 import inference_pb2 as pb
from headrace_proto.wire import split_request
from helpers.served import catalog_of, served

SHAPED = served(
    "!s INT32[2] x FP32[?,4]",
    "y FP32[?,4]",
    "max_batch_size: 8",
    name="shaped",
    shapes_of=lambda shapes: (shapes[1],),
)
CATALOG = catalog_of(SHAPED)


def request(*values: int) -> pb.ModelInferRequest:
    """A request with these values of the shape tensor."""
    inputs = [
        pb.ModelInferRequest.InferInputTensor(name="x", datatype="FP32", shape=[1, 4]),
        pb.ModelInferRequest.InferInputTensor(name="s", datatype="INT32", shape=[2]),
    ]
    raw = [bytes(16), struct.pack("<2i", *values)]
    return pb.ModelInferRequest(model_name="shaped", inputs=inputs, raw_input_contents=raw)


def test_the_layout_follows_the_values() -> None:
    """Equal heads are kept, and yet each request has the layout of its own values."""
    preparer = Preparer(CATALOG, Limits())
    layouts = []
    for values in ((1, 2), (3, 4), (1, 2)):
        parts = split_request(request(*values).SerializeToString())
        prepared, tensors = preparer.prepare(parts.head, parts.raw)
        layouts.append(prepared.layout_of(tensors))
        assert layouts[-1].values == (struct.pack("<2i", *values),)
    assert layouts[0] is layouts[2]
    assert layouts[0] is not layouts[1]
