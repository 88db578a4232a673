"""ModelInfer on the wire: a request out of arrays, arrays out of a reply.

Tensor bytes are touched once each way: joined into the request, and viewed inside the reply.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import cast

from google.protobuf.message import DecodeError

from headrace_client.errors import InvalidInput, InvalidReply
from headrace_client.tensor import Array, TensorLike, encode
from headrace_proto import tensors, wire
from headrace_proto.datatypes import TensorError
from headrace_proto.v1 import inference_pb2 as pb

Parameter = bool | int | float | str
Parameters = Mapping[str, Parameter]
Outputs = Sequence[str] | Mapping[str, Parameters]

RAW_INPUT_FIELD = 7
RAW_OUTPUT_FIELD = 6
LENGTH_DELIMITED = 2
_INT64_MAX = 2**63 - 1
_UINT64_MAX = 2**64 - 1
_MESSAGE_BYTES_MAX = 2**31 - 1  # protobuf and gRPC count in int32


@dataclass(frozen=True, slots=True)
class InferResult:
    """A whole reply.

    Attributes:
        outputs: Arrays by output name, in the server's order. They are read-only views of the
            reply: `.copy()` one to write to it, or to let go of the rest. BYTES are object arrays
            of bytes; BF16 are uint16 arrays of its bits (see `bf16_to_float32`).
        datatypes: The protocol's datatype by output name, such as "FP32".
        model_name: The model that answered.
        model_version: Its version.
        request_id: The id that the request carried.
        parameters: What the server said beside the tensors.
    """

    outputs: dict[str, Array]
    datatypes: dict[str, str]
    model_name: str
    model_version: str
    request_id: str
    parameters: dict[str, Parameter]


def encode_request(
    model_name: str,
    inputs: Mapping[str, TensorLike],
    *,
    outputs: Outputs | None = None,
    version: str = "",
    request_id: str = "",
    parameters: Parameters | None = None,
) -> bytes:
    """Serialize a ModelInferRequest with raw tensors.

    Raises:
        InvalidInput: A tensor or a parameter has no place in the protocol.
    """
    tensors_of = {name: encode(name, value) for name, value in inputs.items()}
    try:
        request = pb.ModelInferRequest(model_name=model_name, model_version=version, id=request_id)
        for name, tensor in tensors_of.items():
            request.inputs.add(name=name, datatype=tensor.datatype, shape=tensor.shape)
        for name in outputs or ():
            output = request.outputs.add(name=name)
            if isinstance(outputs, Mapping):
                _set_parameters(output.parameters, outputs[name])
        _set_parameters(request.parameters, parameters or {})
    except (TypeError, UnicodeError) as error:
        raise InvalidInput(f"names, version and id must be strings: {error}") from error
    parts: list[bytes | memoryview] = [request.SerializeToString()]
    for tensor in tensors_of.values():
        parts += (wire.delimited(RAW_INPUT_FIELD, len(tensor.raw)), tensor.raw)
    size_bytes = sum(map(len, parts))
    if size_bytes > _MESSAGE_BYTES_MAX:
        raise InvalidInput(f"the request is {size_bytes} bytes; gRPC carries {_MESSAGE_BYTES_MAX}")
    return b"".join(parts)


def _set_parameters(target: MutableMapping[str, pb.InferParameter], parameters: Parameters) -> None:
    for name, value in parameters.items():
        match value:
            case bool():
                target[name].bool_param = value
            case int() if -_INT64_MAX - 1 <= value <= _INT64_MAX:
                target[name].int64_param = value
            case int() if 0 < value <= _UINT64_MAX:
                target[name].uint64_param = value
            case int():
                raise InvalidInput(f"parameter {name!r} is {value}; expected at most 64 bits")
            case float():
                target[name].double_param = value
            case str():
                target[name].string_param = value
            case _:
                raise InvalidInput(
                    f"parameter {name!r} is a {type(value).__name__}; "
                    "expected bool, int, float or str"
                )


def decode_reply(reply: bytes) -> InferResult:
    """Read a ModelInferResponse; the arrays are views of `reply`.

    Raises:
        InvalidReply: It is not one, or its tensors are not what it says of them.
    """
    try:
        message, raw = _split(reply)
    except DecodeError as error:
        raise InvalidReply(f"the reply is not a ModelInferResponse: {error}") from error
    outputs = list(message.outputs)
    if raw and len(raw) != len(outputs):
        raise InvalidReply(f"the reply has {len(outputs)} outputs, but {len(raw)} raw tensors")
    arrays: dict[str, Array] = {}
    datatypes: dict[str, str] = {}
    for index, output in enumerate(outputs):
        name = output.name
        arrays[name] = _array_of(output, raw[index] if raw else None)
        datatypes[name] = output.datatype
    return InferResult(
        outputs=arrays,
        datatypes=datatypes,
        model_name=message.model_name,
        model_version=message.model_version,
        request_id=message.id,
        parameters={name: _value_of(value) for name, value in message.parameters.items()},
    )


def _split(reply: bytes) -> tuple[pb.ModelInferResponse, list[bytes | memoryview]]:
    """Part the raw tensors, as views, from the rest; protobuf takes whatever looks unusual."""
    view = memoryview(reply)
    head: list[memoryview] = []
    raw: list[bytes | memoryview] = []
    at = 0
    try:
        while at < len(reply):
            start, tag = at, reply[at]
            if tag & 7 != LENGTH_DELIMITED or tag > 0x7F:
                return _split_by_protobuf(reply)
            size = shift = 0
            while True:
                at += 1
                size |= (reply[at] & 0x7F) << shift
                if reply[at] < 0x80:
                    break
                shift += 7
            body, at = at + 1, at + 1 + size
            if at > len(reply):
                return _split_by_protobuf(reply)
            if tag >> 3 == RAW_OUTPUT_FIELD:
                raw.append(view[body:at])
            else:
                head.append(view[start:at])
    except IndexError:
        return _split_by_protobuf(reply)
    return pb.ModelInferResponse.FromString(b"".join(head)), raw


def _split_by_protobuf(reply: bytes) -> tuple[pb.ModelInferResponse, list[bytes | memoryview]]:
    message = pb.ModelInferResponse.FromString(reply)
    return message, list(message.raw_output_contents)


def _array_of(
    output: pb.ModelInferResponse.InferOutputTensor, raw: bytes | memoryview | None
) -> Array:
    try:
        if raw is None:  # other servers of the protocol may answer in typed values
            num_elements = math.prod(output.shape)
            raw = tensors.contents_to_raw(output.contents, output.datatype, num_elements)
        return tensors.from_raw(raw, output.datatype, tuple(output.shape))
    except TensorError as error:
        raise InvalidReply(f"output {output.name!r} of the reply: {error}") from error


def _value_of(parameter: pb.InferParameter) -> Parameter:
    choice = parameter.WhichOneof("parameter_choice")
    return "" if choice is None else cast("Parameter", getattr(parameter, choice))
