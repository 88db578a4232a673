"""Loads a plan that was just built, where there is a GPU that it was built for."""

from __future__ import annotations

from pathlib import Path

from headrace.building.options import BuildOptions
from headrace.device.base import Device
from headrace.engines.plan import PlanHeader
from headrace.engines.trt import TrtOptions, open_engine
from headrace.errors import ConfigError


def check_by_loading(
    path: Path, header: PlanHeader, device: Device | None, options: BuildOptions
) -> str:
    """Load the plan as a server would, and say what came of it.

    Args:
        path: The plan.
        header: Its own.
        device: An opened device; None when there is none.
        options: What the plan was built with.

    Returns:
        What was found, or why it was not tried.

    Raises:
        ConfigError: The plan does not load, or cannot be served.
    """
    if device is None or device.kind != "cudart":
        return "not loaded: there is no GPU here"
    capability = str(getattr(device, "compute_capability", ""))
    if header.kind == "rtx" and not header.is_for(capability):
        return f"not loaded: it is not for the GPU here, of compute capability {capability}"
    carries_code = options.version_compatible and not options.exclude_lean_runtime
    try:
        # What was built a moment ago may be trusted as far as its builder.
        engine = open_engine(path, device, options=TrtOptions(allow_host_code=carries_code))
    except ConfigError as error:
        raise ConfigError(f"it was built, but cannot be served: {error.reason}") from error
    try:
        return f"loaded on GPU {device.index}: {engine.describe()}"
    finally:
        engine.close()
