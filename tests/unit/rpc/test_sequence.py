"""What a request's parameters say of its sequence, and what the model is told."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from headrace.errors import RequestError
from headrace.rpc.prepare import Limits, Preparer
from headrace.scheduling.request import Request
from headrace.scheduling.sequence import Part
from headrace_proto.v1 import inference_pb2 as pb
from headrace_proto.wire import split_request
from helpers.served import catalog_of, served

CONFIG = """max_batch_size: 4 sequence_batching {
  control_input { name: "start" control { kind: CONTROL_SEQUENCE_START fp32_false_true: [0, 1] } }
  control_input { name: "id" control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } }
  state { input_name: "had" output_name: "has" data_type: TYPE_FP32 dims: [2] } }"""
STATEFUL = served(
    "start FP32[?,1] x FP32[?,4] had FP32[?,2] id UINT64[?,1]",
    "y FP32[?,4] has FP32[?,2]",
    CONFIG,
    name="stateful",
    shapes_of=lambda shapes: (shapes[1], shapes[2]),
)
PLAIN = served("x FP32[?,4]", "y FP32[?,4]", "max_batch_size: 4", name="plain")
X = np.arange(4, dtype=np.float32).tobytes()


def prepared(model: str, rows: int = 1, **parameters: Any) -> tuple[Any, Request]:
    """The checked head, and the request that was handed on."""
    handed: list[Request] = []

    def submit_of(*_: object) -> Any:
        return lambda request, _: handed.append(request)

    tensor = pb.ModelInferRequest.InferInputTensor(name="x", datatype="FP32", shape=[rows, 4])
    message = pb.ModelInferRequest(model_name=model, inputs=[tensor], raw_input_contents=[X * rows])
    for name, value in parameters.items():
        field = {bool: "bool_param", int: "int64_param", str: "string_param"}[type(value)]
        setattr(message.parameters[name], field, value)
    parts = split_request(message.SerializeToString())
    head, tensors = Preparer(catalog_of(STATEFUL, PLAIN), Limits(), submit_of).prepare(
        parts.head, parts.raw
    )
    assert head.layout is not None
    request = head.make(
        head.served.line,
        head.layout,
        tensors,
        rows=rows,
        deadline=None,
        received_at=0.0,
        parsed_at=0.0,
        on_end=lambda *_: None,
    )
    head.submit(request, 0.0)
    assert handed == [request]
    return head, request


@pytest.mark.parametrize("sequence_id", [7, -1, 2**63 - 1])
def test_a_request_gets_its_part_and_the_inputs_that_it_lacks(sequence_id: int) -> None:
    """In the engine's order, laid out for all of them; the state is left to its turn."""
    head, request = prepared(
        "stateful", sequence_id=sequence_id, sequence_start=True, sequence_end=False
    )
    assert request.part == Part(sequence_id, True, False)
    told = np.uint64(sequence_id % 2**64).tobytes()
    expected = [np.float32(1).tobytes(), X, b"", told]
    assert [bytes(each) for each in request.tensors] == expected
    assert head.layout.input_shapes == ((1, 1), (1, 4), (1, 2), (1, 1))
    assert head.layout.input_sizes == (4, 16, 8, 8)


def test_flags_that_are_not_there_are_false() -> None:
    """As in Triton."""
    _, request = prepared("stateful", sequence_id=1)
    assert request.part == Part(1)
    assert bytes(request.tensors[0]) == bytes(4)


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({}, "model 'stateful' must specify a non-zero or non-empty correlation ID"),
        ({"sequence_id": 0, "sequence_start": True}, "non-zero or non-empty correlation ID"),
        ({"sequence_id": ""}, "non-zero or non-empty correlation ID"),
        ({"sequence_id": "seven"}, "is a string, but the model's input 'id' takes it as UINT64"),
        ({"sequence_id": "x" * 129}, "has 129 characters, expected at most 128"),
    ],
)
def test_what_names_no_sequence_is_refused(parameters: dict[str, Any], text: str) -> None:
    """Each with a text that says what was expected."""
    with pytest.raises(RequestError, match=text):
        prepared("stateful", **parameters)


def test_one_row_at_a_time() -> None:
    """Rows of a batch are of different sequences."""
    with pytest.raises(RequestError, match="must specify batch-size 1 .* got 2 rows"):
        prepared("stateful", rows=2, sequence_id=1, sequence_start=True)


def test_a_model_without_state_ignores_them() -> None:
    """Also an id that names nothing."""
    _, request = prepared("plain", rows=3, sequence_id=0, sequence_start=True)
    assert request.part is None
    assert [bytes(each) for each in request.tensors] == [X * 3]
