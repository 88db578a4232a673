"""Requests built by tritonclient's own message classes: a source that is independent of ours.

`pair` takes a FP32 [-1,4] and b INT32 [-1,2], batches up to 8; `identity_*` take x [-1,-1].
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from tritonclient.grpc import service_pb2 as pb

A, B = bytes(16), bytes(8)  # one row of `pair`
Parameter = bool | int | float | str | bytes | None  # bytes stands for uint64, None for no value


def tensor(
    name: str,
    datatype: str,
    shape: Sequence[int],
    *,
    contents: Mapping[str, Iterable[Any]] | None = None,
    parameters: Mapping[str, Parameter] | None = None,
) -> Any:
    """One input; `contents` maps the name of a typed field to its values."""
    made = pb.ModelInferRequest.InferInputTensor(name=name, datatype=datatype, shape=shape)
    for field, values in (contents or {}).items():
        getattr(made.contents, field).extend(values)
    _set_parameters(made.parameters, parameters)
    return made


def infer(
    model: str,
    inputs: Sequence[Any],
    raw: Sequence[bytes] = (),
    *,
    outputs: Sequence[str] = (),
    output_parameters: Mapping[str, Parameter] | None = None,
    version: str = "",
    request_id: str = "",
    parameters: Mapping[str, Parameter] | None = None,
) -> bytes:
    """A whole ModelInferRequest on the wire."""
    request = pb.ModelInferRequest(
        model_name=model,
        model_version=version,
        id=request_id,
        inputs=inputs,
        raw_input_contents=raw,
    )
    for name in outputs:
        output = request.outputs.add(name=name)
        _set_parameters(output.parameters, output_parameters)
    _set_parameters(request.parameters, parameters)
    serialized: bytes = request.SerializeToString()
    return serialized


def identity(array: npt.NDArray[Any], datatype: str, *, request_id: str = "") -> bytes:
    """A request to the identity model of a datatype; `array` is anything but BYTES."""
    name = f"identity_{datatype.lower()}"
    inputs = [tensor("x", datatype, array.shape)]
    return infer(name, inputs, [array.tobytes()], request_id=request_id)


def first_output(reply: bytes, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """The first output of a ModelInferResponse on the wire."""
    response = pb.ModelInferResponse.FromString(reply)
    return np.frombuffer(response.raw_output_contents[0], dtype).reshape(response.outputs[0].shape)


def _set_parameters(target: Any, parameters: Mapping[str, Parameter] | None) -> None:
    fields = {bool: "bool_param", int: "int64_param", float: "double_param", str: "string_param"}
    for name, value in (parameters or {}).items():
        if isinstance(value, bytes):
            target[name].uint64_param = int.from_bytes(value, "little")
        elif value is None:
            target[name].SetInParent()
        else:
            setattr(target[name], fields[type(value)], value)


def a(datatype: str = "FP32", shape: Sequence[int] = (1, 4), name: str = "a", **more: Any) -> Any:
    """Input `a` of `pair`, right unless told otherwise."""
    return tensor(name, datatype, shape, **more)


def b(datatype: str = "INT32", shape: Sequence[int] = (1, 2), name: str = "b", **more: Any) -> Any:
    """Input `b` of `pair`, right unless told otherwise."""
    return tensor(name, datatype, shape, **more)


def pair(
    inputs: Sequence[Any] | None = None,
    raw: Sequence[bytes] = (A, B),
    model: str = "pair",
    **more: Any,
) -> bytes:
    """A request to `pair`, right unless told otherwise."""
    return infer(model, [a(), b()] if inputs is None else inputs, raw, **more)


def one(datatype: str, shape: Sequence[int], raw: bytes | None = None, **contents: Any) -> bytes:
    """A request to the identity model of a datatype, raw or with typed contents."""
    inputs = [tensor("x", datatype, shape, contents=contents)]
    return infer(f"identity_{datatype.lower()}", inputs, () if raw is None else [raw])


GOOD = pair()


# Requests that look odd and are right: each is answered as if it were GOOD.
ODD = {
    "sequence parameters for a model without state": pair(
        parameters={"sequence_id": 7, "sequence_start": True, "sequence_end": True}
    ),
    "a sequence named by a string": pair(parameters={"sequence_id": "one"}),
    "a priority as uint64": pair(parameters={"priority": (3).to_bytes(8, "little")}),
    "a timeout of an hour": pair(parameters={"timeout": 3_600_000_000}),
    "what the C++ client sends": pair(parameters={"triton_enable_empty_final_response": True}),
    "parameters of the user": pair(parameters={"text": "t", "whole": -1, "flag": False}),
    "parameters of an input": pair([a(parameters={"binary_data_size": 16}), b()]),
    "inputs in another order": pair([b(), a()], [B, A]),
    "the version by number": pair(version="1"),
    "an id of 10,000 letters": pair(request_id="i" * 10_000),
    "fields nobody knows": pair() + b"\xfa\x3e\x03abc",
    "the name twice, the last one counts": b"\x0a\x07nothing" + pair(),
}
