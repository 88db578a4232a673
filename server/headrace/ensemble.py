"""A served ensemble: no engine and no slots of its own, but the steps that lead to other models.

Which version of which model serves a step is looked up in the catalog, and anew when that has
changed: models may be loaded, replaced and unloaded while ensembles that use them are served. An
ensemble is ready while all its models are, and fit together.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from headrace.catalog import ModelCatalog
from headrace.engines.autocomplete import complete_defaults
from headrace.engines.base import Layout, Shape, Signature, TensorSpec
from headrace.engines.ensemble_check import model_faults
from headrace.engines.ensemble_plan import EnsemblePlan, models_of, plan_ensemble
from headrace.engines.labels import read_labels
from headrace.engines.layout import plan_layout
from headrace.engines.load_facts import LoadFacts
from headrace.engines.model_folder import ModelSource
from headrace.engines.model_spec import ModelSpec, model_spec
from headrace.engines.tensor_check import engine_dims
from headrace.errors import ConfigError, HeadraceError, UnavailableError
from headrace.metrics import Metrics
from headrace.model import ServedModel
from headrace.scheduling.ensemble_queue import EnsembleQueue
from headrace.scheduling.line import Line
from headrace.scheduling.steps import BoundStep
from headrace.slots.pool import SlotPool
from headrace_proto import datatypes
from headrace_proto.v1 import model_config_pb2 as config_pb

log = logging.getLogger(__name__)

UNSEEN = -1  # no generation of a catalog


@dataclass(frozen=True, slots=True)
class _Found:
    """What a look into the catalog brought.

    Attributes:
        generation: The catalog's at that time.
        steps: With the versions that serve them; empty when there is a reason.
        reason: Why the ensemble cannot be served, empty when it can.
        is_wrong: The reason will not pass by itself: it does not fit its models.
    """

    generation: int
    steps: tuple[BoundStep, ...]
    reason: str = ""
    is_wrong: bool = False


class _Look(threading.local):
    """What the look that this thread takes has brought so far, None while it takes none.

    A look asks the ensembles among the steps, which look themselves. Where several lead to one, on
    many levels, it would be asked along every path: 2^levels times for two steps of one name each.
    """

    found: dict[StepModels, _Found] | None = None


_LOOK = _Look()


class StepModels:
    """The models of an ensemble, as the catalog has them now; any thread may ask."""

    def __init__(
        self, config: config_pb.ModelConfig, plan: EnsemblePlan, catalog: ModelCatalog
    ) -> None:
        self._config = config
        self._plan = plan
        self._catalog = catalog
        self._found = _Found(UNSEEN, ())

    def bind(self, index: int) -> BoundStep:
        """Return a step with the version that serves it.

        Raises:
            UnavailableError: The ensemble cannot be served now.
        """
        found = self._found
        if found.generation != self._catalog.generation or not (
            found.steps and found.steps[index].is_current
        ):
            found = self.look()
        if found.reason:
            name = self._plan.name
            raise UnavailableError(f"ensemble '{name}' is not at ready state: {found.reason}")
        return found.steps[index]

    def look(self) -> _Found:
        """Return what there is, looked up anew where it may have changed: once in one look."""
        so_far = _LOOK.found
        if so_far is not None:
            if self not in so_far:
                so_far[self] = self._current()
            return so_far[self]
        _LOOK.found = {}
        try:
            return self._current()
        finally:
            _LOOK.found = None

    def _current(self) -> _Found:
        found = self._found
        if found.generation != self._catalog.generation or not (
            found.steps and all(step.is_current for step in found.steps)
        ):
            found = self._found = self._look()
        return found

    def _look(self) -> _Found:
        generation = self._catalog.generation  # first: what changes meanwhile is looked up again
        models: list[ServedModel] = []
        for step in self._plan.steps:
            if self._is_within(step.model, set()):
                reason = f"it contains itself, by way of '{step.model}'"
                return _Found(generation, (), reason, is_wrong=True)
            try:
                model = self._catalog.find(step.model, step.version)
            except HeadraceError as error:
                return _Found(generation, (), f"it depends on '{step.model}': {error}")
            if not model.is_ready or model.line.is_retired:
                reason = f"it depends on '{step.model}', which is not at ready state"
                return _Found(generation, (), reason)
            if model.line.sequences is not None:
                reason = f"'{step.model}' keeps state between requests, and cannot be a step yet"
                return _Found(generation, (), reason, is_wrong=True)
            models.append(model)
        faults = model_faults(self._config, [model.config for model in models])
        reason = "; ".join(f"{field}: {why}" for field, why in faults)
        if reason:
            return _Found(generation, (), reason, is_wrong=True)
        steps = zip(self._plan.steps, models, strict=True)
        return _Found(generation, tuple(BoundStep(step, model) for step, model in steps))

    def _is_within(self, name: str, seen: set[str]) -> bool:
        """Say whether a model is this ensemble, or is made of it."""
        if name == self._plan.name:
            return True
        if name in seen:
            return False
        seen.add(name)
        below = {
            each
            for model in self._catalog.versions(name).values()
            for each in models_of(model.config)
        }
        return any(self._is_within(each, seen) for each in sorted(below))


class StepLabels(Mapping[str, tuple[str, ...]]):
    """Labels of an ensemble's outputs: its own, or those of the model that gives the output."""

    def __init__(
        self, own: Mapping[str, tuple[str, ...]], plan: EnsemblePlan, models: StepModels
    ) -> None:
        self._own = own
        self._models = models
        self._sources = {
            plan.tensors[place]: (index, key)
            for index, step in enumerate(plan.steps)
            for key, place in step.outputs.items()
            if place in plan.outputs
        }

    def __getitem__(self, name: str) -> tuple[str, ...]:
        if name in self._own:
            return self._own[name]
        index, key = self._sources[name]
        steps = self._models.look().steps
        return steps[index].model.spec.labels.get(key, ()) if steps else ()

    def __iter__(self) -> Iterator[str]:
        return iter(self._sources)

    def __len__(self) -> int:
        return len(self._sources)


class ServedEnsemble(ServedModel):
    """One version of an ensemble, ready to take requests while its models are."""

    def __init__(
        self, spec: ModelSpec, config: config_pb.ModelConfig, line: Line, models: StepModels
    ) -> None:
        self.spec = spec
        self.config = config
        self.line = line
        self.footprint = None
        self.graphs = None
        self.taken_bytes = 0
        self.cache = None  # a model may be replaced, and its replies with it
        self._models = models

    @property
    def is_ready(self) -> bool:
        """Whether all its models are, and fit."""
        return not self._models.look().reason

    @property
    def why_unready(self) -> str:
        """What it lacks; empty while it is ready."""
        return self._models.look().reason

    def plan(
        self,
        shapes: Sequence[Shape],
        sizes: Sequence[int],
        values: Sequence[bytes] = (),  # noqa: ARG002 -- shape tensors are its models'
    ) -> Layout:
        """Return a layout of the inputs, which lie in no block; see `Served.plan`."""
        pairs = zip(self.spec.input_maps, shapes, strict=True)
        inner = [tensor_map.to_engine(tuple(shape)) for tensor_map, shape in pairs]
        return plan_layout(inner, sizes, None, ())

    def close(self) -> None:
        """Do nothing: nothing is open."""


def open_ensemble(
    source: ModelSource,
    version: int,
    catalog: ModelCatalog,
    metrics: Metrics,
    *,
    max_queue_size: int,
) -> ServedEnsemble:
    """Make a version of an ensemble; its models may come later, and it is not ready until then.

    Args:
        source: With a configuration that has no fault by itself.
        version: The one to serve.
        catalog: Where its models are.
        metrics: Where it is counted.
        max_queue_size: Requests that may be in at a time.

    Raises:
        ConfigError: It does not fit its models, or a label file cannot be read.
    """
    config = config_pb.ModelConfig()
    config.CopyFrom(source.config)
    complete_defaults(config, LoadFacts())
    plan = plan_ensemble(config)
    models = StepModels(config, plan, catalog)
    labels = StepLabels(read_labels(config, source.folder), plan, models)
    spec = replace(model_spec(config, _signature(config), version), labels=labels)
    line = Line(
        spec.name,
        EnsembleQueue(plan, models.bind),
        SlotPool(()),
        metrics.model(spec.name, str(version)),
        max_queue_size,
        is_ensemble=True,
    )
    found = models.look()
    if found.is_wrong:
        raise ConfigError(found.reason, path=str(source.config_path))
    if found.reason:
        log.warning("%s version %d is not ready: %s", spec.name, version, found.reason)
    if config.model_warmup:
        log.warning("%s: model_warmup is not run: its models have samples of their own", spec.name)
    if config.response_cache.enable:
        log.warning("%s: response_cache: the replies of ensembles are not kept", spec.name)
    return ServedEnsemble(spec, config, line, models)


def _signature(config: config_pb.ModelConfig) -> Signature:
    """Return what an ensemble is to its steps: its tensors, `reshape` applied."""
    return Signature(
        tuple(_tensor(config, each) for each in config.input),
        tuple(_tensor(config, each) for each in config.output),
    )


def _tensor(
    config: config_pb.ModelConfig, tensor: config_pb.ModelInput | config_pb.ModelOutput
) -> TensorSpec:
    shape = tuple(None if size == -1 else size for size in engine_dims(config, tensor))
    return TensorSpec(tensor.name, datatypes.from_config(tensor.data_type), shape)
