"""What `headrace inspect` tells of a model file: data, printed elsewhere.

A plan tells its header to anybody, its signature only to TensorRT; an ONNX model its signature to
ONNX Runtime. Whoever calls brings what can open model files on this machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.engines.plan import MAGICS, PlanHeader, read_plan_header
from headrace.engines.platforms import ONNX, TENSORRT, Platform, platform_of_file
from headrace.errors import ConfigError, HeadraceError

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.engines.base import Signature


@dataclass(frozen=True, slots=True)
class Probe:
    """What an engine tells of a model file that is loaded for a look only.

    Attributes:
        profile_rows: Most rows of each optimization profile of a plan; empty for other files.
        memory_bytes: What serving a plan takes, by kind: "weights" once, "context" a slot, "lane"
            (its inputs and outputs) and "block" (the same, pinned) at the largest optimum of a
            profile; empty for other files.
    """

    signature: Signature
    profile_rows: tuple[int, ...] = ()
    memory_bytes: Mapping[str, int] = field(default_factory=dict)


Open = Callable[["Path"], Probe]
"""Loads a model file for a look; raises HeadraceError when it cannot."""


@dataclass(frozen=True, slots=True)
class Inspection:
    """What a model file is.

    Attributes:
        size_bytes: Of the file.
        header: A plan's; None for ONNX.
        probe: The engine's view; None when there is none, and `reason` says why.
        reason: Empty when there is a probe.
    """

    path: Path
    platform: Platform
    size_bytes: int
    header: PlanHeader | None = None
    probe: Probe | None = None
    reason: str = ""


def inspect_file(path: Path, openers: Mapping[str, Open]) -> Inspection:
    """Look into a model file.

    Args:
        path: A plan, an ONNX file, or a folder that holds `model.onnx`.
        openers: By platform name, what can open model files on this machine.

    Raises:
        ConfigError: Neither a plan nor an ONNX model, truncated, or not readable.
    """
    file = path / ONNX.filename if path.is_dir() else path
    try:
        size_bytes = file.stat().st_size
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", path=str(file)) from None
    if not file.is_file():
        raise ConfigError("is not a plain file", path=str(file))
    platform = _platform(file)
    header = read_plan_header(file) if platform is TENSORRT else None
    opener = openers.get(platform.name)
    if opener is None:
        reason = (
            f"the signature of a {platform.name} needs {platform.backend}, which is not installed"
        )
        return Inspection(file, platform, size_bytes, header, reason=reason)
    try:
        probe = opener(file)
    except HeadraceError as error:
        # A plan is tied to a GPU model and a version: its header is worth telling all the same.
        if header is None:
            raise
        return Inspection(file, platform, size_bytes, header, reason=str(error))
    return Inspection(file, platform, size_bytes, header, probe)


def _platform(file: Path) -> Platform:
    """Tell by the first bytes, then by the name: files are often renamed."""
    try:
        with file.open("rb") as opened:
            start = opened.read(4)
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", path=str(file)) from None
    if start in MAGICS:
        return TENSORRT
    if platform := platform_of_file(file.name):
        return platform
    # An ONNX file is a protobuf message that begins with field 1, its format's version.
    return ONNX if start[:1] == b"\x08" else TENSORRT
