"""Reads one model's folder: its configuration, its versions, and the model file of each version."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from headrace.engines.config_json import OVERRIDE
from headrace.engines.ensemble_check import ensemble_faults
from headrace.engines.pbtxt import read_config
from headrace.engines.platforms import ENSEMBLE, ONNX, Platform, identify
from headrace.engines.version_policy import choose_versions, parse_version
from headrace.errors import ConfigError
from headrace.escape import cited
from headrace_proto.v1 import model_config_pb2 as config_pb

CONFIG_FILENAME = "config.pbtxt"
DEFAULT_MAX_BATCH_SIZE = 4  # Triton's `default-max-batch-size`

_OTHER_FOLDERS = frozenset(
    {"configs", "warmup", "initial_state"}
)  # of Triton's layout, no versions


@dataclass(frozen=True, slots=True)
class ModelSource:
    """A model that was found on disk and not opened yet.

    Attributes:
        name: What clients ask for.
        folder: Where `config.pbtxt` and the label files lie.
        repository: The repository that holds the folder.
        config: As written, or empty; `name`, `platform`, `backend` and `default_model_filename`
            are filled in.
        versions: Model file by version, ascending, as the version policy chose; of an ensemble the
            version's folder.
        default_max_batch_size: What auto-completion takes when the model sets no limit itself.
        written: The configuration file, None when there is none.
    """

    name: str
    folder: Path
    repository: Path
    config: config_pb.ModelConfig
    versions: dict[int, Path]
    default_max_batch_size: int = DEFAULT_MAX_BATCH_SIZE
    written: Path | None = None

    @property
    def is_ensemble(self) -> bool:
        """Whether it is made of other models."""
        return self.config.platform == ENSEMBLE.name

    @property
    def config_path(self) -> Path:
        """What errors call the configuration: its file, or the model where nothing is written."""
        return self.written or next(iter(self.versions.values()), self.folder)


@dataclass(frozen=True, slots=True)
class FolderReader:
    """Reads model folders; everything that is wrong or left out is collected, not raised.

    Args:
        faults: What is wrong; a model with a fault is not served.
        notes: What was left out on purpose, one sentence each.
        compute_capability: Of the GPU, such as "8.0", for `cc_model_filenames`; empty on a CPU.
        override: A configuration that takes the place of the written one.
    """

    faults: list[ConfigError]
    notes: list[str]
    compute_capability: str = ""
    override: config_pb.ModelConfig | None = None

    def read(self, folder: Path, repository: Path) -> ModelSource | None:
        """Return the model, None when it has a fault."""
        num_faults = len(self.faults)
        source = None
        try:
            check_model_name(folder.name, path=str(folder))
            source = self._read(folder, repository)
        except ConfigError as fault:
            self.faults.append(fault)
        except OSError as error:  # a name that is longer than a file's may be, for one
            reason = f"cannot be read: {error.strerror}"
            self.faults.append(ConfigError(reason, path=shown(error.filename or folder)))
        return source if len(self.faults) == num_faults else None

    def _read(self, folder: Path, repository: Path) -> ModelSource:
        config, written = self._config(folder)
        path = str(written or folder)
        if config.name and config.name != folder.name:
            name = cited(config.name)
            reason = f'"{name}" is not the folder\'s name "{folder.name}"; they must be equal'
            self.faults.append(ConfigError(reason, path=path, field="name"))
        folders = self._choose(folder, config, path)
        names = {name for each in folders.values() for name in list_names(each)}
        platform = identify(config, names, path=path)
        if platform is ENSEMBLE:
            return self._ensemble(folder, repository, config, folders, written)
        self._check_filenames(config, path)
        filename = self._filename(config, platform)
        versions = {
            version: model_file(each, filename, platform) for version, each in folders.items()
        }
        for version, file in versions.items():
            if not file.is_file():
                self.faults.append(_missing(folders[version], filename))
        config.name = folder.name
        fill_identity(config, platform)
        return ModelSource(folder.name, folder, repository, config, versions, written=written)

    def _ensemble(
        self,
        folder: Path,
        repository: Path,
        config: config_pb.ModelConfig,
        versions: dict[int, Path],
        written: Path | None,
    ) -> ModelSource:
        """Return a model that is no file: its version folders may be empty."""
        config.name, config.platform, config.backend = folder.name, ENSEMBLE.name, ENSEMBLE.backend
        self.faults.extend(ensemble_faults(config, folder=folder, path=str(written or folder)))
        return ModelSource(folder.name, folder, repository, config, versions, written=written)

    def _config(self, folder: Path) -> tuple[config_pb.ModelConfig, Path | None]:
        """Return the configuration, and the file that it was written in."""
        if self.override is not None:
            config = config_pb.ModelConfig()
            config.CopyFrom(self.override)
            return config, OVERRIDE
        path = folder / CONFIG_FILENAME
        # A link to nothing is not an absent configuration: reading it says what is wrong.
        if os.path.lexists(path):
            return read_config(path), path
        return config_pb.ModelConfig(), None

    def _choose(self, folder: Path, config: config_pb.ModelConfig, path: str) -> dict[int, Path]:
        """Return the folders of the versions to serve."""
        available: dict[int, Path] = {}
        for name in list_names(folder):
            version = parse_version(name)
            if version is not None and (folder / name).is_dir():
                available[version] = folder / name
            elif version is not None:
                self.notes.append(f"{shown(folder / name)}: ignored: a version must be a folder")
            elif (folder / name).is_dir() and name not in _OTHER_FOLDERS and name[0] != ".":
                why = "a version is a positive integer without leading zeros"
                self.notes.append(f"{shown(folder / name)}: ignored: {why}")
        choice = choose_versions(config.version_policy, available)
        for version in choice.missing:
            self.notes.append(f"{path}: version_policy: there is no version {version}; not served")
        if not choice.served:
            there = ", ".join(map(str, sorted(available))) or "none"
            reason = f'no version to serve (there: {there}); {_remedy(config)} "{folder.name}/1/"'
            raise ConfigError(reason, path=path)
        return {version: available[version] for version in choice.served}

    def _check_filenames(self, config: config_pb.ModelConfig, path: str) -> None:
        named = [("default_model_filename", config.default_model_filename or "-")]
        named += [
            (f'cc_model_filenames["{key}"]', config.cc_model_filenames[key])
            for key in sorted(config.cc_model_filenames)
        ]
        for field, filename in named:
            if filename in ("", ".", "..") or any(char in filename for char in "/\\\0"):
                reason = (
                    f"{cited(repr(filename))} is not a plain file name; model files lie in the "
                    "version folder"
                )
                self.faults.append(ConfigError(reason, path=path, field=field))

    def _filename(self, config: config_pb.ModelConfig, platform: Platform) -> str:
        fallback = config.default_model_filename or platform.filename
        if not self.compute_capability:
            return fallback
        return config.cc_model_filenames.get(self.compute_capability, fallback)


def check_model_name(name: str, *, path: str) -> None:
    """Refuse a name that cannot stand in a path, a message or a log line as it is.

    Raises:
        ConfigError: Says why.
    """
    if not name or name in (".", "..") or any(char in name for char in "/\\"):
        raise ConfigError(f"{name!r} cannot be a model's name: it is a path", path=path)
    if ".." in name:
        raise ConfigError(f"{name!r} cannot be a model's name: it has '..' in it", path=path)
    if not name.isprintable():  # also surrogates: bytes of the file system that are not UTF-8
        raise ConfigError(
            f"{name!r} cannot be a model's name: not printable text", path=ascii(path)
        )


def shown(path: Path | str) -> str:
    """Return a path as text that can be printed and sent, whatever bytes are in it."""
    text = str(path)
    return text if text.isprintable() else ascii(text)[1:-1]


def list_names(folder: Path) -> list[str]:
    """Return the names in a folder, sorted.

    Raises:
        ConfigError: The folder cannot be read.
    """
    try:
        return sorted(path.name for path in folder.iterdir())
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", path=str(folder)) from None


def model_file(folder: Path, filename: str, platform: Platform) -> Path:
    """Return where the model file of a version folder must be."""
    path = folder / filename
    # An ONNX model in several files is a folder; its main file has the default name.
    return path / ONNX.filename if platform is ONNX and path.is_dir() else path


def fill_identity(config: config_pb.ModelConfig, platform: Platform) -> None:
    """Fill in what the platform decides, where the configuration says nothing."""
    config.platform = platform.name
    config.backend = platform.backend
    config.default_model_filename = config.default_model_filename or platform.filename


def _remedy(config: config_pb.ModelConfig) -> str:
    is_ensemble = config.HasField("ensemble_scheduling")
    return "make an empty folder" if is_ensemble else "put the model file into"


def _missing(folder: Path, filename: str) -> ConfigError:
    there = _some(list_names(folder))
    return ConfigError(
        f'there is no file "{cited(filename)}"; in the folder: {there}', path=str(folder)
    )


def _some(names: Iterable[str], limit: int = 5) -> str:
    names = [shown(name) for name in names]
    more = ", …" if len(names) > limit else ""
    return (", ".join(names[:limit]) + more) or "nothing"
