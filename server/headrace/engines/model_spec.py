"""What the front door and the scheduler need to know of a model, out of its configuration: pure.

Shapes here are the client's: the batch dimension first where the model batches, `reshape` applied.
Tensors stand in the configuration's order; `TensorMap` leads to the engine's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from headrace.engines.base import TensorSpec
from headrace.engines.batching_config import batching_spec
from headrace.engines.batching_spec import BatchingSpec
from headrace.engines.load_facts import profile_index
from headrace.engines.sequence_config import sequence_policy, sequence_spec
from headrace.engines.sequence_spec import SequenceSpec
from headrace.engines.tensor_check import engine_dims
from headrace.engines.tensor_map import Pattern, TensorMap
from headrace_proto import datatypes
from headrace_proto.v1 import model_config_pb2 as config_pb

if TYPE_CHECKING:
    from headrace.engines.base import Signature


@dataclass(frozen=True, slots=True)
class Instances:
    """The slots of a model on one device."""

    gpu: int | None  # index; None: the CPU, or whatever device there is
    num_slots: int  # 0: the server's default
    profiles: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """One version of a model as it is served.

    Attributes:
        inputs: What clients must send.
        outputs: What clients may ask for, all of it by default.
        input_maps: One for each input.
        output_maps: One for each output.
        instances: By device, the CPU first, then GPUs by index; at least one.
        batching: The policy of its queue; None where requests run alone, in order of arrival.
        optional_inputs: Inputs that the configuration calls optional.
        labels: Class names by output name.
        parameters: The configuration's own, as text.
        sequence: How it keeps state between requests; None where it keeps none.
    """

    name: str
    version: int
    platform: str
    backend: str
    max_batch_size: int
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    input_maps: tuple[TensorMap, ...]
    output_maps: tuple[TensorMap, ...]
    instances: tuple[Instances, ...]
    batching: BatchingSpec | None = None
    optional_inputs: frozenset[str] = frozenset()
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    parameters: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    sequence: SequenceSpec | None = None

    @property
    def num_slots(self) -> int:
        """Return the slots on the first device; 0 for the server's default."""
        return self.instances[0].num_slots

    @property
    def profiles(self) -> tuple[int, ...]:
        """Return the optimization profiles on the first device; empty for the engine's first."""
        return self.instances[0].profiles


def model_spec(
    config: config_pb.ModelConfig,
    signature: Signature,
    version: int,
    *,
    labels: Mapping[str, tuple[str, ...]] | None = None,
    initial_states: Mapping[str, bytes] | None = None,
) -> ModelSpec:
    """Turn a completed configuration that has no fault into a spec.

    Args:
        config: As `complete` returned it and `check` passed it.
        signature: The engine's.
        version: The one to serve.
        labels: As `read_labels` returned them.
        initial_states: As `read_initial_states` returned them.
    """
    is_stateful = config.HasField("sequence_batching")
    return ModelSpec(
        name=config.name,
        version=version,
        platform=config.platform,
        backend=config.backend,
        max_batch_size=config.max_batch_size,
        inputs=tuple(_spec(config, tensor) for tensor in config.input),
        outputs=tuple(_spec(config, tensor) for tensor in config.output),
        input_maps=_maps(config, config.input, signature.inputs),
        output_maps=_maps(config, config.output, signature.outputs),
        instances=_instances(config),
        batching=sequence_policy(config) if is_stateful else batching_spec(config),
        optional_inputs=frozenset(each.name for each in config.input if each.optional),
        labels=MappingProxyType(dict(labels or {})),
        parameters=MappingProxyType(
            {key: config.parameters[key].string_value for key in sorted(config.parameters)}
        ),
        sequence=sequence_spec(config, signature, initial_states or {}),
    )


def _spec(
    config: config_pb.ModelConfig, tensor: config_pb.ModelInput | config_pb.ModelOutput
) -> TensorSpec:
    datatype = datatypes.from_config(tensor.data_type)
    shape = _client_shape(config, tensor)
    return TensorSpec(tensor.name, datatype, shape, is_shape_tensor=tensor.is_shape_tensor)


def _client_shape(
    config: config_pb.ModelConfig, tensor: config_pb.ModelInput | config_pb.ModelOutput
) -> Pattern:
    if tensor.is_shape_tensor:
        return _pattern(engine_dims(config, tensor))
    return _pattern([-1, *tensor.dims] if config.max_batch_size > 0 else tensor.dims)


def _maps(
    config: config_pb.ModelConfig,
    tensors: Sequence[config_pb.ModelInput] | Sequence[config_pb.ModelOutput],
    specs: tuple[TensorSpec, ...],
) -> tuple[TensorMap, ...]:
    place = {spec.name: index for index, spec in enumerate(specs)}
    maps: list[TensorMap] = []
    for tensor in tensors:
        index = place[tensor.name]
        client = _client_shape(config, tensor)
        engine = _pattern(engine_dims(config, tensor)) if specs[index].shape else ()
        maps.append(TensorMap(index, client, None if engine == client else engine))
    return tuple(maps)


def _instances(config: config_pb.ModelConfig) -> tuple[Instances, ...]:
    """Sum the groups up by device."""
    num_slots: dict[int | None, int] = {}
    profiles: dict[int | None, set[int]] = {}
    for group in config.instance_group:
        for gpu in group.gpus or (None,):
            num_slots[gpu] = num_slots.get(gpu, 0) + max(group.count, 0)
            named = {profile_index(text) for text in group.profile} - {None}
            profiles.setdefault(gpu, set()).update(index for index in named if index is not None)
    order = sorted(num_slots, key=lambda gpu: -1 if gpu is None else gpu)
    return tuple(Instances(gpu, num_slots[gpu], tuple(sorted(profiles[gpu]))) for gpu in order) or (
        Instances(None, 0),
    )


def _pattern(dims: Sequence[int]) -> Pattern:
    return tuple(None if size == -1 else size for size in dims)
