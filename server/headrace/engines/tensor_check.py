"""Checks `input` and `output` by themselves and against the engine's signature: pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING

from headrace.engines.platforms import TENSORRT
from headrace.engines.sequence_config import hidden_inputs
from headrace.escape import cited
from headrace_proto import datatypes
from headrace_proto.v1 import model_config_pb2 as config_pb

if TYPE_CHECKING:
    from headrace.engines.base import Signature, TensorSpec

Tensor = config_pb.ModelInput | config_pb.ModelOutput
Fault = tuple[str, str]  # field, reason


def check_tensors(
    config: config_pb.ModelConfig, signature: Signature | None, *, may_be_partial: bool = False
) -> Iterator[Fault]:
    """Yield (field, reason) for everything that is wrong with the inputs and outputs."""
    sides: tuple[tuple[str, Sequence[Tensor], tuple[TensorSpec, ...] | None], ...] = (
        ("input", config.input, signature.inputs if signature else None),
        ("output", config.output, signature.outputs if signature else None),
    )
    for side, tensors, specs in sides:
        if not tensors and not may_be_partial:
            yield side, "is missing; without auto-completion all tensors must be written"
        for index, tensor in enumerate(tensors):
            at = f"{side}[{index}]"
            yield from _alone(config, tensor, at)
            if not may_be_partial:
                yield from _missing(tensor, at)
            if tensor.name in [each.name for each in tensors[:index]]:
                yield f"{at}.name", f'"{cited(tensor.name)}" is there twice'
        if specs is not None and tensors:
            yield from _side(config, side, tensors, specs)


def _side(
    config: config_pb.ModelConfig,
    side: str,
    tensors: Sequence[Tensor],
    specs: tuple[TensorSpec, ...],
) -> Iterator[Fault]:
    """Compare one side with the engine's."""
    by_name = {spec.name: spec for spec in specs}
    for index, tensor in enumerate(tensors):
        if spec := by_name.get(tensor.name):
            yield from against(config, tensor, spec, f"{side}[{index}]")
        elif tensor.name:
            reason = f'the model has no {side} "{cited(tensor.name)}"; it has: {", ".join(by_name)}'
            yield f"{side}[{index}].name", reason
    # Outputs may be left out: they are then not offered. An engine needs all its inputs.
    if side == "input":
        names = {tensor.name for tensor in tensors} | hidden_inputs(config)
        for spec in specs:
            if spec.name not in names:
                yield side, f'the model needs "{spec.name}", which is missing'


def _alone(config: config_pb.ModelConfig, tensor: Tensor, at: str) -> Iterator[Fault]:
    is_plan = config.platform == TENSORRT.name
    if not tensor.name:
        yield f"{at}.name", "is missing"
    if wrong := [size for size in tensor.dims if size < 1 and size != -1]:
        yield f"{at}.dims", f"{wrong[0]} is not a dimension; expected 1 or more, or -1 for any"
    elif tensor.HasField("reshape"):
        yield from _reshape(config, tensor, at)
    if isinstance(tensor, config_pb.ModelInput):
        has_image_format = tensor.format != config_pb.ModelInput.FORMAT_NONE
        if has_image_format and len(tensor.dims) != 3:
            yield f"{at}.format", f"images have 3 dims, but there are {len(tensor.dims)}"
    if tensor.is_shape_tensor and not is_plan:
        yield f"{at}.is_shape_tensor", "only TensorRT plans have shape tensors"
    if tensor.is_non_linear_format_io:
        reason = (
            "vectorised formats are not served yet; build the plan with linear inputs and outputs"
        )
        yield f"{at}.is_non_linear_format_io", reason


def _missing(tensor: Tensor, at: str) -> Iterator[Fault]:
    if tensor.data_type == config_pb.TYPE_INVALID:
        yield f"{at}.data_type", "is missing"
    if not tensor.dims:
        yield f"{at}.dims", "is missing; write [ 1 ] with an empty reshape for a scalar"


def _reshape(config: config_pb.ModelConfig, tensor: Tensor, at: str) -> Iterator[Fault]:
    shape, dims = list(tensor.reshape.shape), list(tensor.dims)
    if wrong := [size for size in shape if size < 1 and size != -1]:
        yield f"{at}.reshape", f"{wrong[0]} is not a dimension; expected 1 or more, or -1 for any"
    elif _trunks(dims) != _trunks(shape):
        # With -1 the elements between each two of them must match: then any size can be reshaped.
        yield f"{at}.reshape", f"{shape} does not hold as many elements as dims, {dims}"
    elif not shape and config.max_batch_size == 0:
        yield f"{at}.reshape", "cannot be empty without batching; leave it out"


def _trunks(shape: Sequence[int]) -> list[int]:
    """Return the number of elements between the dynamic dimensions."""
    cuts = [-1, *(i for i, size in enumerate(shape) if size == -1), len(shape)]
    return [prod(shape[a + 1 : b]) for a, b in pairwise(cuts)]


def against(
    config: config_pb.ModelConfig, tensor: Tensor, spec: TensorSpec, at: str
) -> Iterator[Fault]:
    """Yield (field, reason) for what a tensor has that the engine's of its name has not."""
    expected = datatypes.to_config(spec.datatype)
    if tensor.data_type not in (config_pb.TYPE_INVALID, expected):
        written = config_pb.DataType.Name(tensor.data_type)
        wanted = config_pb.DataType.Name(expected)
        yield f"{at}.data_type", f'"{tensor.name}" is {written}, but the model has {wanted}'
    if tensor.is_shape_tensor != spec.is_shape_tensor:
        is_it = "is" if spec.is_shape_tensor else "is no"
        yield f"{at}.is_shape_tensor", f'"{tensor.name}" {is_it} shape tensor in the model'
    elif tensor.dims and not _fits(config, tensor, spec):
        yield f"{at}.dims", _dims_reason(config, tensor, spec)


def engine_dims(config: config_pb.ModelConfig, tensor: Tensor) -> list[int]:
    """Return the shape that the configuration says the engine has, -1 for dynamic dimensions."""
    dims = list(tensor.reshape.shape if tensor.HasField("reshape") else tensor.dims)
    if config.max_batch_size <= 0:
        return dims
    if tensor.is_shape_tensor:
        return [dims[0] + 1, *dims[1:]] if dims and dims[0] > 0 else dims
    return [-1, *dims]


def _fits(config: config_pb.ModelConfig, tensor: Tensor, spec: TensorSpec) -> bool:
    shape = engine_dims(config, tensor)
    if not spec.shape and shape == [1] and config.max_batch_size == 0:
        return True  # a scalar: dims cannot be empty
    if len(shape) != len(spec.shape):
        return False
    is_batched = config.max_batch_size > 0 and not tensor.is_shape_tensor
    pairs = list(zip(shape, spec.shape, strict=True))[1 if is_batched else 0 :]
    # A dynamic dimension of the model may be narrowed, a fixed one not widened.
    return all(theirs is None or theirs == ours for ours, theirs in pairs)


def _dims_reason(config: config_pb.ModelConfig, tensor: Tensor, spec: TensorSpec) -> str:
    shape = engine_dims(config, tensor)
    whole = [-1 if size is None else size for size in spec.shape]
    batching = ""
    if not tensor.is_shape_tensor:
        if config.max_batch_size > 0:
            batching = " (the first is the batch dimension, which dims leave out)"
        elif len(shape) == len(whole) - 1:
            batching = "; set max_batch_size if the first is a batch dimension, else write it too"
    return f'"{tensor.name}" comes to the shape {shape}, but the model has {whole}{batching}'
