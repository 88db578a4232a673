"""Reads a deserialized engine's inputs, outputs and profiles once, and refuses what is not served.

Asking TensorRT for a shape costs microseconds, so everything is turned into plain Python here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from headrace.engines.base import Shape, Signature, TensorSpec
from headrace.engines.profiles import Profile, Range
from headrace.engines.trt_modules import Backend
from headrace.errors import ConfigError

# TensorRT's name → the protocol's, and bytes an element. It has none for FP8, FP4, INT4 and E8M0.
DATATYPES = {
    "FLOAT": ("FP32", 4),
    "HALF": ("FP16", 2),
    "BF16": ("BF16", 2),
    "INT8": ("INT8", 1),
    "INT32": ("INT32", 4),
    "INT64": ("INT64", 8),
    "UINT8": ("UINT8", 1),
    "BOOL": ("BOOL", 1),
}
ITEMSIZE_BYTES = dict(DATATYPES.values())


@dataclass(frozen=True, slots=True)
class EngineTensors:
    """The inputs and outputs of an engine, the shapes that it takes and the memory it wants."""

    signature: Signature
    profiles: tuple[Profile, ...]  # all of the plan's, by index
    memory_bytes: tuple[int, ...]  # activation memory of a context, by profile


def read_tensors(backend: Backend, engine: Any) -> EngineTensors:
    """Read all metadata that serving needs from an `ICudaEngine`.

    Raises:
        ConfigError: Something about the engine cannot be served; says what and how to mend it.
    """
    _check_engine(engine)
    trt = backend.trt
    indices = range(engine.num_optimization_profiles)
    inputs: list[TensorSpec] = []
    outputs: list[TensorSpec] = []
    for position in range(engine.num_io_tensors):
        name = engine.get_tensor_name(position)
        spec = _read_spec(trt, engine, name)
        for index in indices:
            _check_format(engine, name, index)
        if engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT:
            inputs.append(spec)
        else:
            _check_output(backend, engine, spec)
            outputs.append(spec)
    return EngineTensors(
        signature=Signature(tuple(inputs), tuple(outputs)),
        profiles=tuple(_read_profile(engine, inputs, index) for index in indices),
        memory_bytes=tuple(engine.get_device_memory_size_for_profile_v2(i) for i in indices),
    )


def size_bytes(datatype: str, shape: Shape) -> int:
    """Return the bytes of a tensor."""
    return prod(shape) * ITEMSIZE_BYTES[datatype]


def pack_values(spec: TensorSpec, values: Iterable[int]) -> bytes:
    """Return the values of a shape tensor as it is bound."""
    numbers = list(values)
    return struct.pack(f"={len(numbers)}{'q' if spec.datatype == 'INT64' else 'i'}", *numbers)


def unpack_values(spec: TensorSpec, raw: bytes) -> Shape:
    """Return the values in a shape tensor's bytes."""
    code, itemsize = ("q", 8) if spec.datatype == "INT64" else ("i", 4)
    return struct.unpack(f"={len(raw) // itemsize}{code}", raw)


def _check_engine(engine: Any) -> None:
    if engine.num_io_tensors == 0:
        raise ConfigError("has neither inputs nor outputs: build the plan again")
    if engine.streamable_weights_size > 0:
        raise ConfigError(
            "was built with weight streaming, under which enqueue blocks and CUDA graphs are "
            "impossible: build it without BuilderFlag.WEIGHT_STREAMING"
        )


def _read_spec(trt: Any, engine: Any, name: str) -> TensorSpec:
    dtype = engine.get_tensor_dtype(name).name
    if dtype not in DATATYPES:
        raise ConfigError(
            f"tensor {name!r} is of type {dtype}, which the protocol has no name for: add a cast "
            f"to the model, so that it is one of {', '.join(DATATYPES)}"
        )
    is_shape_tensor = engine.get_tensor_location(name) == trt.TensorLocation.HOST
    try:
        sizes = tuple(engine.get_tensor_shape(name))
    except ValueError as error:  # its length is -1, which only tuple() minds, not iteration
        raise ConfigError(f"tensor {name!r} has no fixed number of dimensions") from error
    shape = tuple(size if size >= 0 else None for size in sizes)
    return TensorSpec(name, DATATYPES[dtype][0], shape, is_shape_tensor)


def _check_format(engine: Any, name: str, profile: int) -> None:
    """Refuse a tensor that is not plain row-major: its bytes are not those of the protocol.

    The description is text, but the lean runtime has no other word for channel-last formats.
    """
    described = engine.get_tensor_format_desc(name, profile)
    is_vectorized = engine.get_tensor_vectorized_dim(name, profile) != -1
    if is_vectorized or (described and "linear" not in described.lower()):
        raise ConfigError(
            f"tensor {name!r} has the format {described or 'vectorized'!r}, but requests carry "
            "row-major tensors: build the plan with linear inputs and outputs (trtexec: without "
            "--inputIOFormats and --outputIOFormats)"
        )


def _check_output(backend: Backend, engine: Any, spec: TensorSpec) -> None:
    if spec.is_shape_tensor:
        raise ConfigError(
            f"output {spec.name!r} is a shape tensor, which lies in host memory: drop it from the "
            "outputs of the model, or compute it from another input"
        )
    alias = engine.get_aliased_input_tensor(spec.name) if backend.can.has_aliases else None
    if alias:
        raise ConfigError(
            f"output {spec.name!r} shares the memory of input {alias!r}, which is not served: "
            "requests do not keep their memory"
        )


def _read_profile(engine: Any, inputs: Sequence[TensorSpec], index: int) -> Profile:
    return Profile(
        index=index,
        inputs=tuple(_read_range(engine, spec, index) for spec in inputs),
        values=tuple(
            # The index comes first, whatever the binding's signature calls it.
            _range(spec.name, index, engine.get_tensor_profile_values(index, spec.name))
            for spec in inputs
            if spec.is_shape_tensor
        ),
    )


def _read_range(engine: Any, spec: TensorSpec, index: int) -> Range:
    fixed = tuple(size for size in spec.shape if size is not None)
    if len(fixed) == len(spec.shape):
        return Range(spec.name, fixed, fixed, fixed)
    return _range(spec.name, index, engine.get_tensor_profile_shape(spec.name, index))


def _range(name: str, index: int, bounds: Sequence[Iterable[int]]) -> Range:
    if len(bounds) != 3:
        raise ConfigError(
            f"optimization profile {index} has no minimum, optimum and maximum for input {name!r}: "
            "set them when the plan is built"
        )
    low, best, high = (tuple(bound) for bound in bounds)
    return Range(name, low, best, high)
