"""Finds the models of all repositories on disk; opens none of them.

Rules
- Nothing here raises for a wrong model: faults are collected and the other models are served.
- Links are followed wherever they lead, as Triton does: who may write into the repository decides
  what is loaded, and mounts of container platforms are made of links. What a *configuration* names
  (model files, labels) must stay in the model's own folder.
- Names that begin with a dot are not models, and are passed over without a note.
- The order of models, faults and notes depends on names alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from headrace.engines.model_folder import (
    FolderReader,
    ModelSource,
    check_model_name,
    fill_identity,
    list_names,
    shown,
)
from headrace.engines.platforms import PLATFORMS, platform_of_file
from headrace.errors import ConfigError
from headrace.escape import cited
from headrace_proto.v1 import model_config_pb2 as config_pb

__all__ = [
    "Found",
    "ModelSource",
    "Places",
    "find_models",
    "find_places",
    "read_model",
    "single_file",
]

SINGLE_FILE_MAX_BATCH_SIZE = 256
"""A first look must not end at Triton's default of 4 rows; still a bound for the device buffers."""


@dataclass(slots=True)
class Found:
    """What a search brought.

    Attributes:
        models: By name; none of them has a fault.
        faults: All of them.
        wrong: The faults that belong to a model, by its name.
        notes: What was passed over, one sentence each.
    """

    models: list[ModelSource] = field(default_factory=list)
    faults: list[ConfigError] = field(default_factory=list)
    wrong: dict[str, list[ConfigError]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def blame(self, name: str, faults: Iterable[ConfigError]) -> None:
        """Put faults down to a model."""
        if faults := list(faults):
            self.faults += faults
            self.wrong.setdefault(name, []).extend(faults)


def find_models(
    repositories: Sequence[Path],
    files: Sequence[Path] = (),
    *,
    compute_capability: str = "",
) -> Found:
    """Search repositories and take in single model files.

    Args:
        repositories: Folders of model folders.
        files: Models without a repository, see `single_file`.
        compute_capability: Of the GPU, such as "8.0"; empty on a CPU.

    A name that occurs twice is served by nobody: which one clients would get is not ours to guess.
    """
    found = Found()
    places: defaultdict[str, list[Path]] = defaultdict(list)
    sources: list[ModelSource] = []
    for repository in _distinct(repositories, found.notes):
        for folder in _model_folders(repository, found):
            places[folder.name].append(folder)
            reader = FolderReader([], found.notes, compute_capability)
            if source := reader.read(folder, repository):
                sources.append(source)
            found.blame(shown(folder.name), reader.faults)
    for file in files:
        try:
            sources.append(single_file(file))
        except ConfigError as fault:
            found.blame(shown(file.stem), [fault])
        else:
            places[file.stem].append(file)
    for name, paths in sorted(places.items()):
        if len(paths) > 1:
            found.blame(name, [_twice(name, paths)])
    unique = (source for source in sources if len(places[source.name]) == 1)
    found.models = sorted(unique, key=lambda source: source.name)
    return found


class Places(NamedTuple):
    """Where models lie.

    Attributes:
        by_name: In order of names; a model that is in several places has a fault.
        faults: What could not be looked into: models may be missing here that are there.
    """

    by_name: dict[str, list[Path]]
    faults: list[ConfigError]

    def one(self, name: str) -> Path:
        """Return where a model lies; a name never becomes part of a path.

        Raises:
            ConfigError: It is not there, or there twice.
        """
        places = self.by_name.get(name, [])
        if len(places) == 1:
            return places[0]
        if places:
            raise _twice(name, places)
        why = "; ".join(map(str, self.faults)) or "no repository has a model of that name"
        raise ConfigError(
            f"failed to load '{cited(name)}', failed to poll from model repository: {why}"
        )


def find_places(repositories: Sequence[Path], files: Sequence[Path] = ()) -> Places:
    """Find where models lie, and look into none of them.

    Args:
        repositories: Folders of model folders.
        files: Models without a repository.
    """
    found = Found()
    places: defaultdict[str, list[Path]] = defaultdict(list)
    for repository in _distinct(repositories, found.notes):
        for folder in _model_folders(repository, found):
            places[folder.name].append(folder)
    for file in files:
        places[file.stem].append(file)
    return Places(dict(sorted(places.items())), found.faults)


def read_model(
    place: Path, *, compute_capability: str = "", override: config_pb.ModelConfig | None = None
) -> ModelSource:
    """Read one model's folder, or take in a model that is one file.

    Args:
        place: See `find_places`.
        compute_capability: Of the GPU, such as "8.0"; empty on a CPU.
        override: A configuration that takes the place of the written one.

    Raises:
        ConfigError: It has faults; all of them are told.
    """
    if not place.is_dir():
        if override is not None:
            reason = "a model that was given as a file takes no other configuration"
            raise ConfigError(reason, path=place.stem)
        return single_file(place)
    faults: list[ConfigError] = []
    source = FolderReader(faults, [], compute_capability, override).read(place, place.parent)
    if source is None:
        raise together(faults, str(place))
    return source


def together(faults: Sequence[ConfigError], path: str) -> ConfigError:
    """Tell all faults as one."""
    if len(faults) == 1:
        return faults[0]
    return ConfigError("; ".join(str(fault) for fault in faults), path=path)


def _twice(name: str, paths: Sequence[Path]) -> ConfigError:
    where = " and ".join(str(path) for path in paths)
    reason = f'model "{name}" is there {len(paths)} times: {where}; rename all but one'
    return ConfigError(reason)


def single_file(path: Path) -> ModelSource:
    """Take one model file as a repository of its own: named like the file, version 1.

    Raises:
        ConfigError: Not a file, or its suffix stands for no platform of ours.
    """
    if path.is_dir():
        reason = "is a folder; serve a folder of models with --model-repository"
        raise ConfigError(reason, path=str(path))
    if not path.is_file():
        raise ConfigError("there is no such file", path=str(path))
    platform = platform_of_file(path.name)
    if platform is None:
        suffixes = ", ".join(suffix for each in PLATFORMS for suffix in each.suffixes)
        raise ConfigError(f"does not end in one of {suffixes}", path=str(path))
    check_model_name(path.stem, path=str(path))
    config = config_pb.ModelConfig(name=path.stem, default_model_filename=path.name)
    fill_identity(config, platform)
    folder = path.parent
    return ModelSource(
        path.stem,
        folder,
        folder,
        config,
        {1: path},
        default_max_batch_size=SINGLE_FILE_MAX_BATCH_SIZE,
    )


def _distinct(repositories: Sequence[Path], notes: list[str]) -> list[Path]:
    """Leave out repositories that were given twice, under whatever name."""
    by_place: dict[Path, Path] = {}
    for repository in repositories:
        try:
            place = repository.resolve()
        except (OSError, RuntimeError):  # a loop of links, reported when it is read
            place = repository
        if place in by_place:
            notes.append(f"{repository}: ignored: the same repository as {by_place[place]}")
        else:
            by_place[place] = repository
    return list(by_place.values())


def _model_folders(repository: Path, found: Found) -> list[Path]:
    """Return the folders that stand for models."""
    try:
        names = list_names(repository)
    except ConfigError as fault:
        reason = f"model repository {fault.reason}"
        found.faults.append(ConfigError(reason, path=fault.path))
        return []
    folders: list[Path] = []
    for name in names:
        path = repository / name
        if name.startswith("."):
            continue
        if path.is_dir():
            folders.append(path)
        elif path.is_symlink() and not path.exists():
            found.faults.append(ConfigError("is a link that leads nowhere", path=shown(path)))
        else:
            found.notes.append(f"{shown(path)}: ignored: a model is a folder")
    return folders
