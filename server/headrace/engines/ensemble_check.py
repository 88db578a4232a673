"""What is wrong with the configuration of an ensemble, by itself and against its models: pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.engines.labels import check_labels
from headrace.engines.platforms import ENSEMBLE
from headrace.engines.tensor_check import check_tensors
from headrace.errors import ConfigError
from headrace_proto.v1 import model_config_pb2 as config_pb

if TYPE_CHECKING:
    from pathlib import Path

Fault = tuple[str, str]  # field, reason
Tensor = config_pb.ModelInput | config_pb.ModelOutput
FIELD = "ensemble_scheduling.step"


def ensemble_faults(
    config: config_pb.ModelConfig, *, folder: Path | None = None, path: str | None = None
) -> list[ConfigError]:
    """Return everything that is wrong with an ensemble, whatever its models are.

    Args:
        config: As written, with name and platform.
        folder: The ensemble's, to look for label files; None to leave them out.
        path: What errors call the file.
    """
    faults = list(check_tensors(config, None))
    if config.max_batch_size < 0:
        faults.append(
            ("max_batch_size", f"{config.max_batch_size} is negative; expected 0 or more")
        )
    if config.instance_group:
        reason = "an ensemble has no slots of its own; set it in the configurations of its models"
        faults.append(("instance_group", reason))
    faults += _step_faults(config)
    if not faults:
        faults += [*_tensor_faults(config), *_cycles(config)]
    faults += check_labels(config, folder) if folder else ()
    return [ConfigError(reason, path=path, field=field) for field, reason in faults]


def _step_faults(config: config_pb.ModelConfig) -> Iterator[Fault]:
    steps = config.ensemble_scheduling.step
    if not steps:
        yield FIELD, f'is missing; platform "{ENSEMBLE.name}" needs at least one step'
    for index, step in enumerate(steps):
        at = f"{FIELD}[{index}]"
        if not step.model_name:
            yield f"{at}.model_name", "is missing"
        elif step.model_name == config.name:
            yield f"{at}.model_name", "is the ensemble's own name; it cannot contain itself"
        if step.model_version < -1:
            yield f"{at}.model_version", f"{step.model_version} is no version; -1 is the newest"
        if step.model_namespace:
            yield f"{at}.model_namespace", "model namespaces are not served; leave it out"
        for side, names in (("input_map", step.input_map), ("output_map", step.output_map)):
            if not names:
                yield f"{at}.{side}", "is missing"


def _tensor_faults(config: config_pb.ModelConfig) -> Iterator[Fault]:
    """Every tensor is written once, and needed."""
    inputs = {tensor.name for tensor in config.input}
    outputs = {tensor.name for tensor in config.output}
    written: dict[str, int] = {}
    read: set[str] = set()
    for index, step in enumerate(config.ensemble_scheduling.step):
        read.update(step.input_map.values())
        for key, name in sorted(step.output_map.items()):
            at = f'{FIELD}[{index}].output_map["{key}"]'
            if name in inputs:
                yield at, f'"{name}" is an input of the ensemble; nothing may write it'
            elif name in written:
                yield at, f'"{name}" is written by step {written[name]} already'
            written.setdefault(name, index)
    for index, step in enumerate(config.ensemble_scheduling.step):
        for key, name in sorted(step.input_map.items()):
            if name not in written and name not in inputs:
                reason = f'"{name}" is no input of the ensemble, and no step writes it'
                yield f'{FIELD}[{index}].input_map["{key}"]', reason
    for index, output in enumerate(config.output):
        if output.name not in written:
            yield f"output[{index}].name", f'no step writes "{output.name}"'
    for index, tensor in enumerate(config.input):
        if tensor.name not in read:
            yield f"input[{index}].name", f'no step reads "{tensor.name}"'
    for name, index in written.items():
        if name not in read and name not in outputs:
            reason = f'"{name}" is needed by nobody: no step reads it, and it is no output'
            yield f"{FIELD}[{index}].output_map", reason


def _cycles(config: config_pb.ModelConfig) -> Iterator[Fault]:
    """Run the steps in thought: those that never can begin wait for one another."""
    there = {tensor.name for tensor in config.input}
    waiting = dict(enumerate(config.ensemble_scheduling.step))
    written = {name for step in waiting.values() for name in step.output_map.values()}
    while begun := [i for i, step in waiting.items() if there >= set(step.input_map.values())]:
        for index in begun:
            there.update(waiting.pop(index).output_map.values())
    names = {name for step in waiting.values() for name in step.input_map.values()}
    if waiting and names <= written | there:
        steps = ", ".join(map(str, waiting))
        yield FIELD, f"steps {steps} wait for one another: there is a circle in their tensors"


@dataclass(frozen=True, slots=True)
class _Use:
    """A tensor as one model has it."""

    owner: str
    data_type: config_pb.DataType.ValueType
    dims: tuple[int, ...]
    has_rows: bool

    @property
    def whole(self) -> tuple[int, ...]:
        """Its shape, -1 for any size."""
        return (-1, *self.dims) if self.has_rows else self.dims


def model_faults(
    config: config_pb.ModelConfig, models: Sequence[config_pb.ModelConfig]
) -> Iterator[Fault]:
    """Yield (field, reason) for everything in which an ensemble and its models do not agree.

    Args:
        config: The ensemble's, which has no fault by itself.
        models: The completed configuration of the model of each step.
    """
    has_rows = config.max_batch_size > 0
    uses: dict[str, _Use] = {}
    own: list[Tensor] = [*config.input, *config.output]
    for tensor in own:
        shape = tensor.reshape.shape if tensor.HasField("reshape") else tensor.dims
        uses[tensor.name] = _Use("the ensemble", tensor.data_type, tuple(shape), has_rows)
    steps = zip(config.ensemble_scheduling.step, models, strict=True)
    for index, (step, model) in enumerate(steps):
        at = f"{FIELD}[{index}]"
        if 0 < model.max_batch_size < config.max_batch_size:
            most = f"model '{model.name}' takes {model.max_batch_size} rows at most"
            yield "max_batch_size", f"is {config.max_batch_size}, but {most}"
        for name in sorted({tensor.name for tensor in model.input} - set(step.input_map)):
            yield f"{at}.input_map", f"input '{name}' of model '{model.name}' is given no tensor"
        yield from _side(f"{at}.input_map", step.input_map, model, model.input, uses)
        yield from _side(f"{at}.output_map", step.output_map, model, model.output, uses)


def _side(
    at: str,
    names: Mapping[str, str],
    model: config_pb.ModelConfig,
    tensors: Sequence[Tensor],
    uses: dict[str, _Use],
) -> Iterator[Fault]:
    by_name = {tensor.name: tensor for tensor in tensors}
    side = at.rpartition(".")[2].removesuffix("_map")
    for key, name in sorted(names.items()):
        tensor = by_name.get(key)
        if tensor is None:
            there = ", ".join(sorted(by_name))
            yield f'{at}["{key}"]', f"model '{model.name}' has no such {side}; it has: {there}"
            continue
        use = _Use(
            f"model '{model.name}'", tensor.data_type, tuple(tensor.dims), model.max_batch_size > 0
        )
        reason = _difference(uses.setdefault(name, use), use)
        if reason:
            yield f'{at}["{key}"]', f'tensor "{name}": {reason}'


def _difference(one: _Use, other: _Use) -> str:
    """Say how two uses of a tensor differ; "" when they may be the same at run time."""
    if one.data_type != other.data_type:
        types = [config_pb.DataType.Name(each.data_type) for each in (one, other)]
        return f"{types[0]} in {one.owner}, but {types[1]} in {other.owner}"
    if _agree(one.dims, other.dims) or _agree(one.whole, other.whole):
        return ""
    return f"{list(one.whole)} in {one.owner}, but {list(other.whole)} in {other.owner}"


def _agree(one: Sequence[int], other: Sequence[int]) -> bool:
    return len(one) == len(other) and all(
        a == b or -1 in (a, b) for a, b in zip(one, other, strict=True)
    )
