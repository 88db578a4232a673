"""The steps of an ensemble and the tensors between them, out of its configuration: pure.

A *tensor* here is a name inside the ensemble: its own inputs and outputs, and what its steps hand
to one another. They are told apart by their place in `EnsemblePlan.tensors`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace_proto.v1 import model_config_pb2 as config_pb

if TYPE_CHECKING:
    from headrace.engines.model_folder import ModelSource


@dataclass(frozen=True, slots=True)
class EnsembleStep:
    """One call of a model.

    Attributes:
        model: Its name.
        version: A number, or "" for the newest that is ready.
        inputs: By the model's name of an input, the tensor that it is given.
        outputs: By the model's name of an output, the tensor that it gives.
    """

    model: str
    version: str
    inputs: Mapping[str, int]
    outputs: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class EnsemblePlan:
    """What follows from what.

    Attributes:
        name: The ensemble's.
        steps: In the configuration's order.
        tensors: Names; the ensemble's inputs come first, in the configuration's order.
        num_inputs: So many of them are the ensemble's inputs.
        outputs: The tensor of each output of the ensemble, in the configuration's order.
        readers: By tensor, the steps that it is given to, each once.
        num_uses: By tensor, how often it is needed: by steps, and as an output.
        num_needed: By step, how many tensors must be there before it can begin.
    """

    name: str
    steps: tuple[EnsembleStep, ...]
    tensors: tuple[str, ...]
    num_inputs: int
    outputs: tuple[int, ...]
    readers: tuple[tuple[int, ...], ...]
    num_uses: tuple[int, ...]
    num_needed: tuple[int, ...]

    def where(self, index: int) -> str:
        """Name a step for people."""
        return f"in ensemble '{self.name}', step {index} (model '{self.steps[index].model}')"


def plan_ensemble(config: config_pb.ModelConfig) -> EnsemblePlan:
    """Return the plan of a configuration that `ensemble_faults` finds no fault in."""
    places: dict[str, int] = {}
    for tensor in config.input:
        places.setdefault(tensor.name, len(places))
    for step in config.ensemble_scheduling.step:
        for name in (*_sorted(step.input_map).values(), *_sorted(step.output_map).values()):
            places.setdefault(name, len(places))
    steps = tuple(
        EnsembleStep(
            step.model_name,
            version_asked(step),
            {key: places[value] for key, value in _sorted(step.input_map).items()},
            {key: places[value] for key, value in _sorted(step.output_map).items()},
        )
        for step in config.ensemble_scheduling.step
    )
    outputs = tuple(places[tensor.name] for tensor in config.output)
    needed = [set(step.inputs.values()) for step in steps]
    readers = tuple(
        tuple(index for index, tensors in enumerate(needed) if place in tensors)
        for place in range(len(places))
    )
    return EnsemblePlan(
        config.name,
        steps,
        tuple(places),
        len(config.input),
        outputs,
        readers,
        tuple(len(readers[place]) + outputs.count(place) for place in range(len(places))),
        tuple(map(len, needed)),
    )


def models_of(config: config_pb.ModelConfig) -> list[str]:
    """Return the names of the models of an ensemble, each once; none of any other model."""
    return list(dict.fromkeys(step.model_name for step in config.ensemble_scheduling.step))


def load_order(sources: Sequence[ModelSource]) -> list[ModelSource]:
    """Return models so that those of an ensemble come before it, and else as they came."""
    by_name = {source.name: source for source in sources}
    ordered: dict[str, ModelSource] = {}
    begun: set[str] = set()

    def take(source: ModelSource) -> None:
        if source.name in begun:
            return  # there already; or in a circle, which is found when it is loaded
        begun.add(source.name)
        for name in models_of(source.config):
            if name in by_name:
                take(by_name[name])
        ordered[source.name] = source

    for source in sources:
        take(source)
    return list(ordered.values())


def version_asked(step: config_pb.ModelEnsembling.Step) -> str:
    """Return the version that a step names; -1, and nothing, stand for the newest."""
    return str(step.model_version) if step.model_version > 0 else ""


def _sorted(names: Mapping[str, str]) -> dict[str, str]:
    """Protobuf's maps have no order of their own."""
    return dict(sorted(names.items()))
