"""The kinds of model file that we serve, and what tells them apart: configuration or file name."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.errors import ConfigError
from headrace.escape import cited

if TYPE_CHECKING:
    from headrace_proto.v1 import model_config_pb2 as config_pb


@dataclass(frozen=True, slots=True)
class Platform:
    """One kind of model file, by the names that Triton has for it."""

    name: str  # ModelConfig.platform
    backend: str  # ModelConfig.backend
    filename: str  # inside a version folder, unless `default_model_filename` says otherwise
    suffixes: tuple[str, ...]


TENSORRT = Platform("tensorrt_plan", "tensorrt", "model.plan", (".plan", ".engine", ".trt"))
ONNX = Platform("onnxruntime_onnx", "onnxruntime", "model.onnx", (".onnx",))
PLATFORMS = (TENSORRT, ONNX)  # in the order in which Triton looks for their files
ENSEMBLE = Platform("ensemble", "", "", ())  # no file: it is its configuration


def platform_of_file(filename: str) -> Platform | None:
    """Return the platform that a file's suffix stands for, None when we serve no such file."""
    lower = filename.lower()
    return next((each for each in PLATFORMS if lower.endswith(each.suffixes)), None)


def identify(config: config_pb.ModelConfig, filenames: Collection[str], *, path: str) -> Platform:
    """Find the platform: from `platform` or `backend`, else from the model file's name.

    Args:
        config: As written.
        filenames: What lies in the model's version folders.
        path: What errors call the file.

    Raises:
        ConfigError: Not known, not served here, or `platform` and `backend` contradict each other.
    """
    if config.HasField("ensemble_scheduling") or config.platform == ENSEMBLE.name:
        return _ensemble(config, path)
    by_platform = next((each for each in PLATFORMS if each.name == config.platform), None)
    by_backend = next((each for each in PLATFORMS if each.backend == config.backend), None)
    if config.platform and by_platform is None:
        reason = f'"{cited(config.platform)}" is not served here; expected {_platforms()}'
        raise ConfigError(reason, path=path, field="platform")
    if config.backend and by_backend is None:
        expected = " or ".join(f'"{each.backend}"' for each in PLATFORMS)
        reason = f'"{cited(config.backend)}" is not served here; expected {expected}'
        raise ConfigError(reason, path=path, field="backend")
    if by_platform and by_backend and by_platform is not by_backend:
        reason = (
            f'"{config.backend}" does not go with platform "{config.platform}"; '
            "one of the two is enough"
        )
        raise ConfigError(reason, path=path, field="backend")
    return by_platform or by_backend or _by_filename(config, filenames, path)


def _ensemble(config: config_pb.ModelConfig, path: str) -> Platform:
    if not config.HasField("ensemble_scheduling"):
        reason = f'is missing; platform "{ENSEMBLE.name}" needs its steps'
        raise ConfigError(reason, path=path, field="ensemble_scheduling")
    for field, got in (("platform", config.platform), ("backend", config.backend)):
        if got not in ("", ENSEMBLE.name):
            reason = f'"{got}" has no ensemble_scheduling; expected platform "{ENSEMBLE.name}"'
            raise ConfigError(reason, path=path, field=field)
    return ENSEMBLE


def _by_filename(config: config_pb.ModelConfig, filenames: Collection[str], path: str) -> Platform:
    if named := config.default_model_filename:
        if found := platform_of_file(named):
            return found
        reason = f'"{cited(named)}" does not tell the platform; set "platform" to {_platforms()}'
        raise ConfigError(reason, path=path, field="default_model_filename")
    for each in PLATFORMS:
        if each.filename in filenames:
            return each
    wanted = " or ".join(each.filename for each in PLATFORMS)
    reason = f"no {wanted} in the version folder, and neither platform nor backend is set"
    raise ConfigError(reason, path=path)


def _platforms() -> str:
    return " or ".join(f'"{each.name}"' for each in PLATFORMS)
