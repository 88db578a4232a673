"""What `headrace inspect` tells of a model, as data: its files, and the configuration it gets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToDict

from headrace.engines.inspection import Inspection, Open, inspect_file
from headrace.engines.load_facts import LoadFacts
from headrace.engines.model_config import complete
from headrace.engines.model_folder import CONFIG_FILENAME, FolderReader, ModelSource, fill_identity
from headrace.engines.repository import SINGLE_FILE_MAX_BATCH_SIZE
from headrace.engines.version_policy import parse_version
from headrace.errors import ConfigError
from headrace_proto.v1 import model_config_pb2 as config_pb

_Tensor = tuple[str, str, str, tuple[int | None, ...]]  # side, name, datatype, shape


@dataclass(frozen=True, slots=True)
class FileReport:
    """One model file: one version of the model."""

    version: int
    inspection: Inspection

    def tensors(self) -> Iterator[_Tensor]:
        """Yield side, name, datatype and shape of every tensor, as the engine has them."""
        if self.inspection.probe is None:
            return
        signature = self.inspection.probe.signature
        for side, specs in (("input", signature.inputs), ("output", signature.outputs)):
            for spec in specs:
                yield side, spec.name, spec.datatype, spec.shape

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON has it; a dynamic dimension is -1 as in the protocol."""
        inspection, header = self.inspection, self.inspection.header
        tensors = [
            {"side": side, "name": name, "datatype": datatype, "shape": _wire_shape(shape)}
            for side, name, datatype, shape in self.tensors()
        ]
        return {
            "version": self.version,
            "path": str(inspection.path),
            "platform": inspection.platform.name,
            "size_bytes": inspection.size_bytes,
            "inputs": _of_side(tensors, "input") if inspection.probe else None,
            "outputs": _of_side(tensors, "output") if inspection.probe else None,
            "profile_rows": list(inspection.probe.profile_rows) if inspection.probe else None,
            "memory_bytes": dict(inspection.probe.memory_bytes) if inspection.probe else None,
            "reason": inspection.reason or None,
            "plan": None
            if header is None
            else {
                "kind": header.kind,
                "magic": header.magic,
                "version": list(header.version) if header.version else None,
                "offset_bytes": header.offset_bytes,
                "size_bytes": header.size_bytes,
                "capability_mask": header.capability_mask,
                "compute_capabilities": list(header.compute_capabilities),
            },
        }


@dataclass(frozen=True, slots=True)
class ModelReport:
    """A model with its files; `config` is completed from the newest that tells its signature."""

    name: str
    files: tuple[FileReport, ...]
    config: config_pb.ModelConfig
    notes: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON has it; the configuration under the names of config.pbtxt."""
        return {
            "name": self.name,
            "files": [file.as_dict() for file in self.files],
            "config": MessageToDict(self.config, preserving_proto_field_name=True),
            "notes": self.notes,
        }


def report_on(path: Path, openers: Mapping[str, Open]) -> ModelReport:
    """Look into a model file, or into a model's folder.

    Raises:
        ConfigError: It is neither, or has faults: all of them in one text.
    """
    path = path.absolute()  # so that "." has a name
    if not _is_model_folder(path):
        inspection = inspect_file(path, openers)
        return _report(_source_of(inspection), {1: inspection}, [])
    faults: list[ConfigError] = []
    notes: list[str] = []
    source = FolderReader(faults, notes).read(path, path.parent)
    if source is None:
        raise ConfigError("\n".join(str(fault) for fault in faults))
    files = {} if source.is_ensemble else source.versions
    inspections = {version: inspect_file(file, openers) for version, file in files.items()}
    return _report(source, inspections, notes)


def _is_model_folder(path: Path) -> bool:
    if not path.is_dir():
        return False
    versions = (child for child in path.iterdir() if parse_version(child.name) is not None)
    return (path / CONFIG_FILENAME).exists() or any(child.is_dir() for child in versions)


def _source_of(inspection: Inspection) -> ModelSource:
    """Take a file as a model of its own, whatever its suffix is."""
    path = inspection.path
    config = config_pb.ModelConfig(name=path.stem, default_model_filename=path.name)
    fill_identity(config, inspection.platform)
    return ModelSource(
        path.stem,
        path.parent,
        path.parent,
        config,
        {1: path},
        default_max_batch_size=SINGLE_FILE_MAX_BATCH_SIZE,
    )


def _report(
    source: ModelSource, inspections: Mapping[int, Inspection], notes: list[str]
) -> ModelReport:
    files = tuple(FileReport(version, inspections[version]) for version in sorted(inspections))
    probes = [file.inspection.probe for file in files if file.inspection.probe is not None]
    config = source.config
    if probes:
        facts = LoadFacts(
            profile_rows=probes[-1].profile_rows,
            default_max_batch_size=source.default_max_batch_size,
        )
        config = complete(
            config,
            probes[-1].signature,
            auto_complete=True,
            facts=facts,
            path=str(source.config_path),
        )
    return ModelReport(source.name, files, config, notes)


def _of_side(tensors: list[dict[str, Any]], side: str) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in tensor.items() if name != "side"}
        for tensor in tensors
        if tensor["side"] == side
    ]


def _wire_shape(shape: tuple[int | None, ...]) -> list[int]:
    return [-1 if dim is None else dim for dim in shape]
