"""What `headrace check` finds in repositories: every fault of every model, as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from headrace.engines.ensemble_check import FIELD, model_faults
from headrace.engines.ensemble_plan import load_order, models_of
from headrace.engines.inspection import Open, Probe
from headrace.engines.load_facts import LoadFacts
from headrace.engines.model_config import check, complete, unhonoured
from headrace.engines.repository import ModelSource, find_models
from headrace.errors import ConfigError, HeadraceError

if TYPE_CHECKING:
    from pathlib import Path

    from headrace_proto.v1 import model_config_pb2 as config_pb


@dataclass(slots=True)
class CheckedModel:
    """One model without a fault of its folder.

    Attributes:
        config: Completed; as written where no engine could be asked.
        versions: Those that would be served.
    """

    name: str
    config: config_pb.ModelConfig
    versions: tuple[int, ...]


@dataclass(slots=True)
class Checked:
    """The outcome: faults mean that a model would not be served, warnings that it would be.

    Attributes:
        models: By name, also those with faults of their configuration.
        warnings: Fields that are not honoured, engines that could not be asked.
        notes: What was passed over on purpose.
    """

    models: list[CheckedModel] = field(default_factory=list)
    faults: list[ConfigError] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def check_repository(
    repositories: Sequence[Path],
    files: Sequence[Path] = (),
    *,
    openers: Mapping[str, Open],
    auto_complete: bool = True,
    facts: LoadFacts | None = None,
    compute_capability: str = "",
) -> Checked:
    """Check all models as loading them would, as far as this machine can.

    Args:
        repositories: Folders of model folders.
        files: Models without a repository.
        openers: By platform name, what can open model files on this machine.
        auto_complete: As for `complete`.
        facts: About the machine that will serve; by default nothing is assumed of its GPUs.
        compute_capability: Of its GPU, for `cc_model_filenames`.
    """
    found = find_models(repositories, files, compute_capability=compute_capability)
    checked = Checked(faults=found.faults, notes=found.notes)
    for source in found.models:
        if source.is_ensemble:
            continue
        checker = _Checker(source, openers, auto_complete, facts or LoadFacts(), checked)
        checker.run()
    for source in load_order([each for each in found.models if each.is_ensemble]):
        _check_ensemble(source, checked)
    checked.models.sort(key=lambda model: model.name)
    return checked


def _check_ensemble(source: ModelSource, checked: Checked) -> None:
    """Check an ensemble against its models, as far as their tensors are known."""
    path, config = str(source.config_path), source.config
    models = {model.name: model.config for model in checked.models}
    checked.models.append(CheckedModel(source.name, config, tuple(source.versions)))
    checked.warnings += [f"{path}: {field}: is not honoured yet" for field in unhonoured(config)]
    missing = [name for name in models_of(config) if name not in models]
    for name in missing:
        reason = f"there is no model '{name}' that could be served before it"
        checked.faults.append(ConfigError(reason, path=path, field=FIELD))
    if missing:
        return
    below = [models[step.model_name] for step in config.ensemble_scheduling.step]
    for unknown in dict.fromkeys(each.name for each in below if not (each.input and each.output)):
        checked.warnings.append(f"{path}: not checked against '{unknown}': its tensors are unknown")
    if all(each.input and each.output for each in below):
        faults = model_faults(config, below)
        checked.faults += [ConfigError(why, path=path, field=field) for field, why in faults]


@dataclass(frozen=True, slots=True)
class _Checker:
    """Checks one model and adds what it finds."""

    source: ModelSource
    openers: Mapping[str, Open]
    auto_complete: bool
    facts: LoadFacts
    checked: Checked

    def run(self) -> None:
        """Check every version: each has an engine, and so a signature, of its own."""
        source = self.source
        where = str(source.config_path)
        for path in unhonoured(source.config):
            self.checked.warnings.append(f"{where}: {path}: is not honoured yet")
        model = CheckedModel(source.name, source.config, tuple(source.versions))
        self.checked.models.append(model)
        seen: set[str] = set()
        for file in source.versions.values():
            try:
                faults = self._check(model, self._probe(file))
            except ConfigError as fault:
                faults = [fault]
            except HeadraceError as error:
                faults = [ConfigError(str(error), path=str(file))]
            # Versions mostly share their faults.
            self.checked.faults += [each for each in faults if str(each) not in seen]
            seen.update(map(str, faults))

    def _probe(self, file: Path) -> Probe | None:
        opener = self.openers.get(self.source.config.platform)
        if opener is not None:
            return opener(file)
        needed = self.source.config.backend
        reason = f"{needed} is not installed here: not checked against the engine"
        self.checked.warnings.append(f"{file}: {reason}")
        return None

    def _check(self, model: CheckedModel, probe: Probe | None) -> list[ConfigError]:
        source, path = self.source, str(self.source.config_path)
        if probe is None:
            # Nothing to complete from: only what is written can be wrong.
            return check(
                source.config,
                None,
                facts=self.facts,
                folder=source.folder,
                path=path,
                may_be_partial=self.auto_complete,
            )
        facts = replace(
            self.facts,
            profile_rows=probe.profile_rows,
            default_max_batch_size=source.default_max_batch_size,
        )
        model.config = complete(
            source.config,
            probe.signature,
            auto_complete=self.auto_complete,
            facts=facts,
            path=path,
        )
        return check(model.config, probe.signature, facts=facts, folder=source.folder, path=path)
