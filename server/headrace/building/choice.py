"""Chooses the builder: TensorRT's where there is a GPU to build on, else RTX's; or as named."""

from __future__ import annotations

from typing import Final, Literal

from headrace.building.options import BuildOptions
from headrace.device.base import Device
from headrace.engines.trt_modules import Backend, open_builder
from headrace.errors import ConfigError

Wanted = Literal["auto", "tensorrt", "rtx"]

NEEDS_GPU: Final = (
    "TensorRT builds on the GPU that the plan is for, since it times its kernels there, and there "
    "is no GPU here"
)


def choose_builder(wanted: Wanted, options: BuildOptions, device: Device | None) -> Backend:
    """Import the builder that is wanted.

    Raises:
        ConfigError: It, or with "auto" none of the two, can be used here; says why.
    """
    if wanted == "rtx" or (wanted == "auto" and options.compute_capabilities):
        return open_builder("rtx")
    has_gpu = device is not None and device.kind == "cudart"
    if wanted == "tensorrt":
        if not has_gpu:
            raise ConfigError(f"{NEEDS_GPU}; --backend rtx builds without one")
        return open_builder("standard")
    faults: list[str] = []
    if has_gpu:
        try:
            return open_builder("standard")
        except ConfigError as error:
            faults.append(error.reason)
    else:
        faults.append(NEEDS_GPU)
    try:
        return open_builder("rtx")
    except ConfigError as error:
        raise ConfigError("; ".join([*faults, error.reason])) from error
