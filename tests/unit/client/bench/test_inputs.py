"""Requests out of a model's metadata: read back by protobuf, as a server would."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace_client.bench.inputs import InputOptions, Requests, generated, requests, tails
from headrace_client.errors import InvalidInput
from headrace_proto.datatypes import DATATYPES
from headrace_proto.tensors import from_raw
from headrace_proto.v1 import inference_pb2 as pb

INPUTS = {"x": ("FP32", [-1, 3, -1]), "ids": ("INT64", [-1, 4])}


def metadata(inputs: Mapping[str, tuple[str, list[int]]] = INPUTS) -> pb.ModelMetadataResponse:
    tensors = [
        pb.ModelMetadataResponse.TensorMetadata(name=name, datatype=datatype, shape=shape)
        for name, (datatype, shape) in inputs.items()
    ]
    return pb.ModelMetadataResponse(name="m", inputs=tensors)


def made(
    inputs: Mapping[str, tuple[str, list[int]]] = INPUTS, num_sources: int = 1, **options: Any
) -> Requests:
    chosen: dict[str, Any] = {
        "given": [],
        "data": "random",
        "shapes": {},
        "rows": None,
        "outputs": None,
        "parameters": {},
        "seed": 0,
    }
    return requests(metadata(inputs), "2", InputOptions(**{**chosen, **options}), num_sources)


def read(requests: Requests, source: int = 0) -> tuple[pb.ModelInferRequest, dict[str, Any]]:
    """What a server sees: the message, and its arrays."""
    messages = requests.messages
    message = pb.ModelInferRequest.FromString(messages.base + messages.tails[source])
    arrays = {
        tensor.name: from_raw(raw, tensor.datatype, tuple(tensor.shape))
        for tensor, raw in zip(message.inputs, message.raw_input_contents, strict=True)
    }
    return message, arrays


def test_shapes_are_filled_in() -> None:
    """The batch by -b, other open dimensions by --shape, with the batch or without."""
    for shape in ((2, 3, 5), (3, 5)):
        seen = made(shapes={"x": shape}, rows=2)
        message, arrays = read(seen)
        assert (message.model_name, message.model_version) == ("m", "2")
        assert arrays["x"].shape == (2, 3, 5)
        assert arrays["ids"].shape == (2, 4)
        assert seen.rows == 2
        assert seen.shapes == ["x FP32[2, 3, 5]", "ids INT64[2, 4]"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "say its open dimensions, as in --shape x:1x3x1"),
        ({"shapes": {"x": (4, 5)}}, r"--shape x:4x5: model has shape \[-1, 3, -1\]"),
        ({"shapes": {"x": (1, 1, 1, 5)}}, "model has shape"),
        ({"shapes": {"x": (4, 3, 5)}, "rows": 2}, "begins with 4 rows, and -b says 2"),
        ({"shapes": {"y": (4,)}}, "model 'm' has inputs x, ids"),
        ({"given": ["y=1"]}, "has inputs x, ids"),
    ],
)
def test_what_does_not_fit(options: dict[str, Any], text: str) -> None:
    """Says what the model has, and how to mend it."""
    with pytest.raises(InvalidInput, match=text):
        made(**options)


def test_a_model_without_batches() -> None:
    """Has one row, and no other number of them."""
    fixed: dict[str, tuple[str, list[int]]] = {"x": ("FP32", [1, 4])}
    assert made(fixed).rows == 1
    assert made(fixed, rows=1).rows == 1
    with pytest.raises(InvalidInput, match="no batch"):
        made(fixed, rows=2)


def test_given_arrays(tmp_path: Path) -> None:
    """Are sent as they are, or with their rows repeated; the others are generated."""
    np.save(tmp_path / "x.npy", np.arange(6, dtype=np.float32).reshape(2, 3, 1))
    given = [f"x=@{tmp_path / 'x.npy'}"]
    _, arrays = read(made(given=given, rows=3))
    assert arrays["x"][:, :, 0].tolist() == [[0, 1, 2], [3, 4, 5], [0, 1, 2]]
    assert arrays["ids"].shape == (3, 4)
    only_x = {"x": INPUTS["x"]}
    seen = made(only_x, given=given)
    assert read(seen)[1]["x"].shape == (2, 3, 1)
    assert seen.rows == 2


@pytest.mark.parametrize("datatype", DATATYPES)
def test_every_datatype_can_be_generated(datatype: str) -> None:
    """Random within what models take, the same for a seed; zeros are zeros."""
    inputs: dict[str, tuple[str, list[int]]] = {"x": (datatype, [50])}
    one, same, other, zeros = (
        read(made(inputs, seed=seed, data=data))[1]["x"]
        for seed, data in ((1, "random"), (1, "random"), (2, "random"), (1, "zeros"))
    )
    assert one.tolist() == same.tolist()
    assert one.tolist() != other.tolist()
    if datatype == "BYTES":
        assert {len(text) for text in one} == {16}
        assert set(zeros) == {b""}
        return
    assert not zeros.any()
    assert len(set(one.tolist())) > (1 if datatype == "BOOL" else 20)
    if datatype.startswith("FP"):
        assert (one >= 0).all()
        assert (one <= 1).all()
    elif "INT" in datatype and datatype != "UINT8":
        assert (one >= 0).all()
        assert (one < 128).all()


def test_scalars() -> None:
    """An input without dimensions is one number."""
    assert generated("FP32", (), "random", np.random.default_rng(0)).shape == ()
    assert read(made({"x": ("FP32", [])}))[1]["x"].shape == ()


def test_parameters_travel_by_type() -> None:
    """As Triton's own client sends them: the priority is unsigned, other whole numbers signed."""
    parameters = {"a": True, "b": -3, "c": 0.5, "d": "text", "priority": 2, "e": 2**63}
    message, _ = read(made({"x": ("FP32", [1])}, parameters=parameters))
    kinds = {
        name: value.WhichOneof("parameter_choice") for name, value in message.parameters.items()
    }
    assert kinds == {
        "a": "bool_param",
        "b": "int64_param",
        "c": "double_param",
        "d": "string_param",
        "priority": "uint64_param",
        "e": "uint64_param",
    }
    assert message.parameters["b"].int64_param == -3
    assert message.parameters["d"].string_param == "text"


def test_sources_have_their_number() -> None:
    """Each source's requests differ in stream_id alone."""
    seen = made({"x": ("FP32", [1])}, num_sources=3, parameters={"a": 1})
    for source in range(3):
        message, _ = read(seen, source)
        assert message.parameters["stream_id"].int64_param == source
        assert message.parameters["a"].int64_param == 1
        assert len(message.inputs) == len(message.raw_input_contents) == 1
    assert tails({}, 1) == (b"",)


def test_asked_outputs() -> None:
    """Only these are wanted back."""
    message, _ = read(made({"x": ("FP32", [1])}, outputs=["y"]))
    assert [output.name for output in message.outputs] == ["y"]
