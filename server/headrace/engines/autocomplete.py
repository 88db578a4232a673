"""Completes a configuration from the engine's signature, as Triton's backends do: pure.

What the user wrote is never changed, with one exception that Triton makes too: `max_batch_size: 0`
cannot be told from an absent one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from headrace.engines.load_facts import LoadFacts, has_fixed_rows, max_rows
from headrace.engines.platforms import ONNX
from headrace.engines.sequence_config import DEFAULT_IDLE_US, hidden_inputs, hidden_outputs
from headrace.errors import ConfigError
from headrace_proto import datatypes
from headrace_proto.v1 import model_config_pb2 as config_pb

if TYPE_CHECKING:
    from headrace.engines.base import Signature, TensorSpec

Tensor = config_pb.ModelInput | config_pb.ModelOutput


def complete_tensors(
    config: config_pb.ModelConfig, signature: Signature, facts: LoadFacts, *, path: str | None
) -> None:
    """Fill in `max_batch_size`, `input`, `output` and `dynamic_batching`, in place.

    Raises:
        ConfigError: Some `dims` have a batch dimension and others have none.
    """
    # Triton's ONNX backend leaves a configuration with inputs and outputs as it is, batching
    # included; its TensorRT backend completes batching always.
    is_whole = bool(config.platform == ONNX.name and config.input and config.output)
    if not config.max_batch_size and not is_whole:
        config.max_batch_size = _rows(config, signature, facts, path)
    is_batched = config.max_batch_size > 0
    inputs, outputs = hidden_inputs(config), hidden_outputs(config)
    for spec in () if config.input else signature.inputs:
        if spec.name not in inputs:
            config.input.add().name = spec.name
    for spec in () if config.output else signature.outputs:
        if spec.name not in outputs:
            config.output.add().name = spec.name
    for tensor, spec in _pairs(config, signature):
        _complete_tensor(tensor, spec, is_batched=is_batched)
    has_scheduler = config.WhichOneof("scheduling_choice") is not None
    if config.max_batch_size > 1 and not has_scheduler and not is_whole:
        config.dynamic_batching.SetInParent()


def _rows(
    config: config_pb.ModelConfig, signature: Signature, facts: LoadFacts, path: str | None
) -> int:
    """Choose `max_batch_size`: what the given `dims` hint at, else what the engine can do."""
    hints = {hint for pair in _pairs(config, signature) if (hint := _is_batched(*pair)) is not None}
    if len(hints) == 2:
        reason = (
            "some inputs and outputs have dims with a batch dimension and some without; set "
            "max_batch_size and leave the batch dimension out of all dims, or write it in all"
        )
        raise ConfigError(reason, path=path, field="max_batch_size")
    if False in hints:
        return 0
    rows = max_rows(config, signature, facts)
    if rows is None:
        return max(facts.default_max_batch_size, 0)
    # A fixed batch of more than one row takes exactly that many: served as it is, without batching.
    return 0 if rows > 1 and has_fixed_rows(signature) else rows


def _is_batched(tensor: Tensor, spec: TensorSpec) -> bool | None:
    """Say whether the given dims leave out a batch dimension, None when they do not tell."""
    dims = tensor.reshape.shape if tensor.HasField("reshape") else tensor.dims
    if not tensor.dims:
        return None
    if spec.is_shape_tensor:
        return _hint(dims[0] if dims else 0, spec.shape[0] if spec.shape else None)
    return _hint(len(dims), len(spec.shape))


def _hint(given: int, whole: int | None) -> bool | None:
    if whole is None or given not in (whole, whole - 1):
        return None
    return given == whole - 1


def _complete_tensor(tensor: Tensor, spec: TensorSpec, *, is_batched: bool) -> None:
    if tensor.data_type == config_pb.TYPE_INVALID:
        tensor.data_type = datatypes.to_config(spec.datatype)
    if spec.is_shape_tensor:
        tensor.is_shape_tensor = True
    if tensor.dims:
        return
    shape = [-1 if size is None else size for size in spec.shape]
    if spec.is_shape_tensor:
        # The batch size is one of its values, the first, and is left out like a batch dimension.
        tensor.dims.extend([size - 1 if is_batched and size > 0 else size for size in shape])
    else:
        tensor.dims.extend(shape[1:] if is_batched else shape)
    if not tensor.dims:
        tensor.dims.append(1)  # empty dims are not allowed; the engine sees none
        if is_batched:
            tensor.reshape.SetInParent()


def _pairs(
    config: config_pb.ModelConfig, signature: Signature
) -> Iterator[tuple[Tensor, TensorSpec]]:
    """Yield what the configuration names together with what the engine calls so."""
    sides: Iterable[tuple[Iterable[Tensor], tuple[TensorSpec, ...]]] = (
        (config.input, signature.inputs),
        (config.output, signature.outputs),
    )
    for tensors, specs in sides:
        by_name = {spec.name: spec for spec in specs}
        for tensor in tensors:
            if spec := by_name.get(tensor.name):
                yield tensor, spec


def complete_instances(config: config_pb.ModelConfig, facts: LoadFacts) -> None:
    """Fill in `instance_group`, in place: where the model runs, and in how many slots."""
    if not config.instance_group:
        config.instance_group.add().name = config.name
    for index, group in enumerate(config.instance_group):
        group.name = group.name or f"{config.name}_{index}"
        group.count = group.count or facts.num_slots
        if facts.gpus is None:
            continue
        if group.kind == config_pb.ModelInstanceGroup.KIND_AUTO:
            has_gpus = bool(facts.gpus) and set(group.gpus) <= set(facts.gpus)
            kinds = config_pb.ModelInstanceGroup
            group.kind = kinds.KIND_GPU if has_gpus else kinds.KIND_CPU
        if group.kind == config_pb.ModelInstanceGroup.KIND_GPU and not group.gpus:
            group.gpus.extend(facts.gpus)


def complete_defaults(config: config_pb.ModelConfig, facts: LoadFacts) -> None:
    """Fill in what Triton's core fills in for every model, and CUDA graphs, in place."""
    if not config.HasField("version_policy"):
        config.version_policy.latest.num_versions = 1
    if config.HasField("dynamic_batching"):
        batching = config.dynamic_batching
        if not batching.preferred_batch_size and config.max_batch_size > 0:
            batching.preferred_batch_size.append(config.max_batch_size)
    if config.HasField("sequence_batching"):
        sequences = config.sequence_batching
        sequences.max_sequence_idle_microseconds = (
            sequences.max_sequence_idle_microseconds or DEFAULT_IDLE_US
        )
        has_sizes = bool(sequences.oldest.preferred_batch_size)
        if sequences.HasField("oldest") and not has_sizes and config.max_batch_size > 0:
            sequences.oldest.preferred_batch_size.append(config.max_batch_size)
    for buffers in ("input_pinned_memory", "output_pinned_memory"):
        if not config.optimization.HasField(buffers):
            getattr(config.optimization, buffers).enable = True
    if facts.has_graphs and not config.optimization.HasField("cuda"):
        config.optimization.cuda.graphs = True
