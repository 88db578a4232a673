"""The requests of a run: made from the model's metadata, or of what the user gave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headrace_client.arguments import read_inputs
from headrace_client.bench.level import Messages
from headrace_client.errors import InvalidInput
from headrace_client.message import Parameter, encode_request
from headrace_client.tensor import Array, Tensor
from headrace_proto import datatypes
from headrace_proto.v1 import inference_pb2 as pb

DATA_KINDS = ("random", "zeros")
SOURCE_PARAMETER = "stream_id"
# Triton's own clients send it so; other whole numbers are int64.
_UNSIGNED = frozenset({"priority"})
_RANDOM_BELOW = 128  # so that whole numbers can be indices into tables of real models
_INT64_MAX = 2**63 - 1


@dataclass(frozen=True)
class InputOptions:
    """What the user said about the inputs.

    Args:
        given: ``NAME=JSON`` or ``NAME=@FILE.npy``; the other inputs are generated.
        data: How: "random" or "zeros".
        shapes: Dimensions by input, with or without the batch dimension.
        rows: Rows a request; None: one, or what the given arrays have.
        outputs: Names of the outputs to ask for; None: all.
        parameters: Request parameters.
        seed: Of random data.
    """

    given: Sequence[str]
    data: str
    shapes: Mapping[str, tuple[int, ...]]
    rows: int | None
    outputs: Sequence[str] | None
    parameters: Mapping[str, Parameter]
    seed: int


@dataclass(frozen=True)
class Requests:
    """What is sent, and how to speak of it.

    Args:
        model: Whom they are for.
        version: Of the model, "" for the server's choice.
        messages: Serialized.
        rows: In each request.
        shapes: Datatype and shape of each input, such as ``x FP32[1, 64]``.
    """

    model: str
    version: str
    messages: Messages
    rows: int
    shapes: Sequence[str]


def requests(
    metadata: pb.ModelMetadataResponse, version: str, options: InputOptions, num_sources: int
) -> Requests:
    """Make the requests for a model.

    Raises:
        InvalidInput: A shape is open, or does not fit the model; or as in `read_inputs`.
    """
    unknown = set(options.shapes) - {each.name for each in metadata.inputs}
    if unknown:
        known = ", ".join(each.name for each in metadata.inputs) or "none"
        raise InvalidInput(f"--shape {unknown.pop()}: model {metadata.name!r} has inputs {known}")
    given = read_inputs(options.given, metadata)
    random = np.random.default_rng(options.seed)
    tensors: dict[str, Tensor] = {}
    rows = 1
    for each in metadata.inputs:
        is_batched = len(each.shape) > 0 and each.shape[0] == -1
        if each.name in given:
            tensor = given[each.name]
            if is_batched and options.rows is not None:
                tensor = _with_rows(tensor, options.rows)
        else:
            shape = full_shape(each, options.shapes.get(each.name), options.rows)
            tensor = Tensor(generated(each.datatype, shape, options.data, random), each.datatype)
        tensors[each.name] = tensor
        if is_batched and np.ndim(tensor.data):
            rows = np.shape(tensor.data)[0]
    base = encode_request(metadata.name, tensors, outputs=options.outputs, version=version)
    shapes = [
        f"{name} {each.datatype}{list(np.shape(each.data))}" for name, each in tensors.items()
    ]
    messages = Messages(base, tails(options.parameters, num_sources))
    return Requests(metadata.name, version, messages, rows, shapes)


def tails(parameters: Mapping[str, Parameter], num_sources: int) -> tuple[bytes, ...]:
    """Return the parameters of each source's requests, serialized; its number is `stream_id`."""
    if num_sources <= 1:
        return (_tail(parameters),)
    return tuple(_tail({**parameters, SOURCE_PARAMETER: number}) for number in range(num_sources))


def _tail(parameters: Mapping[str, Parameter]) -> bytes:
    request = pb.ModelInferRequest()
    for name, value in parameters.items():
        parameter = request.parameters[name]
        match value:
            case bool():
                parameter.bool_param = value
            case int() if name in _UNSIGNED or value > _INT64_MAX:
                parameter.uint64_param = value
            case int():
                parameter.int64_param = value
            case float():
                parameter.double_param = value
            case str():
                parameter.string_param = value
    return request.SerializeToString()


def full_shape(
    declared: pb.ModelMetadataResponse.TensorMetadata,
    given: tuple[int, ...] | None,
    rows: int | None,
) -> tuple[int, ...]:
    """Return an input's shape: what is declared, with its open dimensions filled in.

    Raises:
        InvalidInput: A dimension stays open, or what was given does not fit.
    """
    name, dims = declared.name, tuple(declared.shape)
    is_batched = bool(dims) and dims[0] == -1
    if rows is not None and not is_batched and rows != (dims[0] if dims else 1):
        raise InvalidInput(
            f"-b {rows}: input {name!r} has shape {list(dims)}, whose first dimension is no batch"
        )
    if given is None:
        shape = (rows or 1, *dims[1:]) if is_batched else dims
        if min(shape, default=0) < 0:
            example = "x".join("1" if dim < 0 else str(dim) for dim in shape)
            raise InvalidInput(
                f"input {name!r} has shape {list(dims)}: say its open dimensions, "
                f"as in --shape {name}:{example}"
            )
        return shape
    shape = (rows or 1, *given) if is_batched and len(given) == len(dims) - 1 else given
    fits = len(shape) == len(dims) and all(
        there in (-1, here) for there, here in zip(dims, shape, strict=True)
    )
    if not fits:
        text = "x".join(map(str, given))
        raise InvalidInput(f"--shape {name}:{text}: model has shape {list(dims)} for this input")
    if rows is not None and shape[0] != rows:
        raise InvalidInput(f"--shape {name} begins with {shape[0]} rows, and -b says {rows}")
    return shape


def generated(
    datatype: str, shape: tuple[int, ...], data: str, random: np.random.Generator
) -> Array:
    """Make values: zeros, or random ones from 0 to 1 (floats), 0 to 127 (integers), or letters."""
    dtype = datatypes.find(datatype).numpy
    if datatype == "BYTES":
        texts = np.full(shape, b"", dtype=object)
        if data == "random":
            for place in np.ndindex(shape):
                texts[place] = bytes(random.integers(ord("a"), ord("z") + 1, 16, np.uint8))
        return texts
    if datatype == "BF16":
        dtype = np.dtype(np.float32)  # from which it is rounded
    if data == "zeros":
        return np.zeros(shape, dtype)
    if dtype.kind == "f":
        return random.random(shape, np.float32).astype(dtype)
    below = {"b": 2, "u": 256 if dtype.itemsize == 1 else _RANDOM_BELOW}.get(dtype.kind)
    values: NDArray[np.int64] = random.integers(0, below or _RANDOM_BELOW, shape)
    return values.astype(dtype)


def _with_rows(tensor: Tensor, rows: int) -> Tensor:
    array = np.asarray(tensor.data)
    if not array.ndim or not len(array):
        return tensor
    return Tensor(np.take(array, np.arange(rows) % len(array), axis=0), tensor.datatype)
