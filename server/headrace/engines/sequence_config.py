"""Reads `sequence_batching` out of a model's configuration: pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from typing import TYPE_CHECKING, Final

import numpy as np

from headrace.engines.base import Shape
from headrace.engines.batching_spec import BatchingSpec
from headrace.engines.layout import num_elements
from headrace.engines.sequence_spec import Control, Fact, SequenceSpec, State
from headrace_proto import datatypes
from headrace_proto.v1 import model_config_pb2 as config_pb

if TYPE_CHECKING:
    from headrace.engines.base import Signature, TensorSpec

Batching = config_pb.ModelSequenceBatching

DEFAULT_IDLE_US: Final = 1_000_000
"""Triton's."""

FACTS: Final[Mapping[int, Fact]] = {
    Batching.Control.CONTROL_SEQUENCE_START: "start",
    Batching.Control.CONTROL_SEQUENCE_READY: "ready",
    Batching.Control.CONTROL_SEQUENCE_END: "end",
    Batching.Control.CONTROL_SEQUENCE_CORRID: "id",
}


def hidden_inputs(config: config_pb.ModelConfig) -> frozenset[str]:
    """Return the names of the inputs that clients do not send."""
    batching = config.sequence_batching
    controls = (control.name for control in batching.control_input)
    return frozenset((*controls, *(state.input_name for state in batching.state)))


def hidden_outputs(config: config_pb.ModelConfig) -> frozenset[str]:
    """Return the names of the outputs that clients do not see unless `output` lists them."""
    return frozenset(state.output_name for state in config.sequence_batching.state)


def sequence_spec(
    config: config_pb.ModelConfig, signature: Signature, initial: Mapping[str, bytes]
) -> SequenceSpec | None:
    """Return how a model serves sequences; None where it keeps no state.

    Args:
        config: Completed, without a fault.
        signature: The engine's.
        initial: By the name of a state's input, what a file says that it starts with.
    """
    if not config.HasField("sequence_batching"):
        return None
    batching = config.sequence_batching
    inputs = {spec.name: index for index, spec in enumerate(signature.inputs)}
    outputs = {spec.name: index for index, spec in enumerate(signature.outputs)}
    states = []
    for state in batching.state:
        shape = state_shape(config, state, signature.inputs[inputs[state.input_name]])
        datatype = datatypes.from_config(state.data_type)
        size_bytes = num_elements(shape) * datatypes.find(datatype).itemsize_bytes
        states.append(
            State(
                inputs[state.input_name],
                outputs[state.output_name],
                state.input_name,
                datatype,
                shape,
                initial.get(state.input_name, bytes(size_bytes)),
            )
        )
    return SequenceSpec(
        idle_s=(batching.max_sequence_idle_microseconds or DEFAULT_IDLE_US) / 1e6,
        max_candidates=max(batching.oldest.max_candidate_sequences, 0),
        has_rows=config.max_batch_size > 0,
        least_rows=_least_rows(config),
        controls=tuple(_control(each, inputs[each.name]) for each in batching.control_input),
        states=tuple(states),
    )


def sequence_policy(config: config_pb.ModelConfig) -> BatchingSpec:
    """Return how requests of different sequences run together.

    `oldest` has the fields of `dynamic_batching`; `direct` waits only where `_least_rows` says so.

    Args:
        config: Completed, without a fault, with `sequence_batching`.
    """
    batching, most = config.sequence_batching, max(config.max_batch_size, 1)
    if batching.HasField("oldest"):
        oldest = batching.oldest
        return BatchingSpec(
            max_rows=most,
            preferred_rows=tuple(sorted(set(oldest.preferred_batch_size))),
            max_delay_s=oldest.max_queue_delay_microseconds / 1e6,
            preserve_ordering=oldest.preserve_ordering,
        )
    delay_us = batching.direct.max_queue_delay_microseconds if _least_rows(config) else 0
    return BatchingSpec(max_rows=most, max_delay_s=delay_us / 1e6)


def _least_rows(config: config_pb.ModelConfig) -> int:
    """Return how many rows are worth waiting for; 0 for any number, as Triton's `direct` has it."""
    share = config.sequence_batching.direct.minimum_slot_utilization
    return ceil(share * config.max_batch_size)


def state_shape(config: config_pb.ModelConfig, state: Batching.State, spec: TensorSpec) -> Shape:
    """Return the shape of one row of a state; a dimension that nothing says is 1, as in Triton."""
    own: Sequence[int | None] = spec.shape[1:] if config.max_batch_size > 0 else spec.shape
    first: Sequence[int] = state.initial_state[0].dims if state.initial_state else ()
    given = [state.dims, own, first]
    shape = []
    for place in range(len(state.dims)):
        sizes = [each[place] for each in given if place < len(each)]
        shape.append(next((size for size in sizes if size is not None and size != -1), 1))
    return tuple(shape)


def control_values(control: Batching.Control) -> tuple[str, bytes, bytes] | None:
    """Return a control's datatype and its elements for false and true; None where it is unclear."""
    pairs: tuple[tuple[str, Sequence[float]], ...] = (
        ("INT32", control.int32_false_true),
        ("FP32", control.fp32_false_true),
        ("BOOL", control.bool_false_true),
    )
    given = [(datatype, values) for datatype, values in pairs if values]
    if len(given) != 1 or len(given[0][1]) != 2:
        return None
    datatype, values = given[0]
    false, true = np.array(list(values), datatypes.find(datatype).numpy)
    return datatype, false.tobytes(), true.tobytes()


def _control(given: Batching.ControlInput, index: int) -> Control:
    (control,) = given.control
    fact = FACTS[control.kind]
    if fact == "id":
        return Control(index, given.name, fact, datatypes.from_config(control.data_type))
    values = control_values(control)
    assert values is not None, "the configuration has been checked"
    return Control(index, given.name, fact, *values)
