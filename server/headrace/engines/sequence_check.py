"""Checks `sequence_batching` by itself and against the engine's signature: pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from headrace.engines.batching_config import QUEUE_PARAMETERS
from headrace.engines.initial_state import check_initial
from headrace.engines.sequence_config import FACTS, Batching, control_values, state_shape
from headrace.engines.tensor_check import Tensor, against
from headrace.escape import cited
from headrace_proto import datatypes
from headrace_proto.v1 import model_config_pb2 as config_pb

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.engines.base import Signature, TensorSpec

Fault = tuple[str, str]  # field, reason

AT = "sequence_batching"
ID_TYPES = ("TYPE_UINT64", "TYPE_INT64", "TYPE_UINT32", "TYPE_INT32")


def check_sequences(
    config: config_pb.ModelConfig, signature: Signature | None, folder: Path | None = None
) -> Iterator[Fault]:
    """Yield (field, reason) for everything that is wrong with how a model serves sequences.

    Args:
        config: Completed.
        signature: The engine's, None to check the configuration by itself.
        folder: The model's, to look for files of initial states; None to leave them out.
    """
    if not config.HasField("sequence_batching"):
        return
    yield from _strategy(config)
    yield from _names(config)
    for index, control in enumerate(config.sequence_batching.control_input):
        at = f"{AT}.control_input[{index}]"
        faults = list(_control(control, at))
        yield from faults
        if not faults and signature is not None:
            yield from _hidden(config, _as_input(control), signature.inputs, f"{at}.name")
    kinds = [
        each.kind for given in config.sequence_batching.control_input for each in given.control
    ]
    for kind in sorted({kind for kind in kinds if kinds.count(kind) > 1}):
        name = Batching.Control.Kind.Name(kind)
        yield f"{AT}.control_input", f"{name} is told by more than one input"
    for index, state in enumerate(config.sequence_batching.state):
        at = f"{AT}.state[{index}]"
        faults = [*_state(state, at), *check_initial(state, f"{at}.initial_state", folder)]
        yield from faults
        if not faults and signature is not None:
            yield from _state_against(config, state, signature, at)


def _strategy(config: config_pb.ModelConfig) -> Iterator[Fault]:
    batching = config.sequence_batching
    if batching.iterative_sequence:
        reason = "requests that run again by themselves are not served; send one for each step"
        yield f"{AT}.iterative_sequence", reason
    for key in sorted(QUEUE_PARAMETERS & set(config.parameters)):
        yield f'parameters["{key}"]', f"cannot be had together with {AT}"
    if any(tensor.is_shape_tensor for tensor in config.input):
        yield AT, "models with shape tensors are not served in sequences"
    share = batching.direct.minimum_slot_utilization
    if not 0.0 <= share <= 1.0:
        yield f"{AT}.direct.minimum_slot_utilization", f"{share:g} is not between 0 and 1"
    oldest, most = batching.oldest, config.max_batch_size
    if oldest.max_candidate_sequences < 0:
        reason = f"{oldest.max_candidate_sequences} is negative; expected 0 (by default) or more"
        yield f"{AT}.oldest.max_candidate_sequences", reason
    for index, size in enumerate(oldest.preferred_batch_size):
        if not 0 < size <= most:
            reason = f"{size} is not between 1 and max_batch_size, which is {most}"
            yield f"{AT}.oldest.preferred_batch_size[{index}]", reason


def _names(config: config_pb.ModelConfig) -> Iterator[Fault]:
    """Yield names that are there twice, among what is hidden or as something clients send."""
    batching = config.sequence_batching
    inputs = [
        *(
            (each.name, f"{AT}.control_input[{index}].name")
            for index, each in enumerate(batching.control_input)
        ),
        *(
            (each.input_name, f"{AT}.state[{index}].input_name")
            for index, each in enumerate(batching.state)
        ),
    ]
    outputs = [
        (each.output_name, f"{AT}.state[{index}].output_name")
        for index, each in enumerate(batching.state)
    ]
    sent = {tensor.name for tensor in config.input}
    for names in (inputs, outputs):
        for place, (name, field) in enumerate(names):
            if not name:
                yield field, "is missing"
            elif name in [other for other, _ in names[:place]]:
                yield field, f'"{cited(name)}" is there twice'
            elif names is inputs and name in sent:
                yield (
                    field,
                    f'"{cited(name)}" is in "input" too; the server fills it in: remove it there',
                )


def _control(given: Batching.ControlInput, at: str) -> Iterator[Fault]:
    if len(given.control) != 1:
        yield f"{at}.control", f"has {len(given.control)} entries, expected one"
        return
    (control,) = given.control
    if FACTS[control.kind] == "id":
        name = config_pb.DataType.Name(control.data_type)
        if name not in ID_TYPES:
            yield f"{at}.control[0].data_type", f"is {name}; expected one of {', '.join(ID_TYPES)}"
    elif control_values(control) is None:
        reason = "needs one of int32_false_true, fp32_false_true and bool_false_true, of two values"
        yield f"{at}.control[0]", reason


def _state(state: Batching.State, at: str) -> Iterator[Fault]:
    if state.data_type == config_pb.TYPE_INVALID:
        yield f"{at}.data_type", "is missing"
    elif state.data_type == config_pb.TYPE_STRING:
        yield f"{at}.data_type", "states of strings are not served: their size is not known"
    if not state.dims:
        yield f"{at}.dims", "is missing"
    elif wrong := [size for size in state.dims if size < 1 and size != -1]:
        yield f"{at}.dims", f"{wrong[0]} is not a dimension; expected 1 or more, or -1"
    if state.use_growable_memory:
        yield f"{at}.use_growable_memory", "states that grow are not served"


def _state_against(
    config: config_pb.ModelConfig, state: Batching.State, signature: Signature, at: str
) -> Iterator[Fault]:
    """Hold a state against the engine: it comes out in the shape in which it goes in."""
    spec = next((each for each in signature.inputs if each.name == state.input_name), None)
    dims: Sequence[int] = state.dims
    if spec is not None and len(dims) + (config.max_batch_size > 0) == len(spec.shape):
        dims = state_shape(config, state, spec)
    tensor = config_pb.ModelInput(name=state.input_name, data_type=state.data_type, dims=dims)
    yield from _hidden(config, tensor, signature.inputs, f"{at}.input_name")
    output = config_pb.ModelOutput(name=state.output_name, data_type=state.data_type, dims=dims)
    yield from _hidden(config, output, signature.outputs, f"{at}.output_name")


def _hidden(
    config: config_pb.ModelConfig, tensor: Tensor, specs: Sequence[TensorSpec], at: str
) -> Iterator[Fault]:
    """Hold a hidden input or output against the engine's of its name."""
    spec = next((each for each in specs if each.name == tensor.name), None)
    if spec is None:
        names = ", ".join(each.name for each in specs)
        yield at, f'the model has no "{cited(tensor.name)}"; it has: {names}'
        return
    yield from ((at, reason) for _, reason in against(config, tensor, spec, ""))


def _as_input(given: Batching.ControlInput) -> config_pb.ModelInput:
    """Return a control as the input that the model must have: one element a row."""
    (control,) = given.control
    values = control_values(control)
    kind = control.data_type if values is None else datatypes.to_config(values[0])
    return config_pb.ModelInput(name=given.name, data_type=kind, dims=[1])
