"""Finds the TensorRT that a plan wants and says what it can do; the one file that imports one.

Rules
- Import only after a device was opened: TensorRT's libraries must find CUDA in use already, and the
  lean runtime crashes the process where there is no driver.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headrace.engines.plan import PRODUCTS, Kind
from headrace.engines.trt_api import OLDEST_VERSION
from headrace.errors import ConfigError

MODULES: dict[Kind, tuple[str, ...]] = {
    # The short names come from front-end packages, the long ones from the bindings alone. The lean
    # runtime comes last: it takes only plans built to be version compatible.
    "standard": ("tensorrt", "tensorrt_bindings", "tensorrt_lean", "tensorrt_lean_bindings"),
    "rtx": ("tensorrt_rtx", "tensorrt_rtx_bindings"),
}
PACKAGES: dict[Kind, str] = {"standard": "tensorrt (or tensorrt_lean)", "rtx": "tensorrt_rtx"}


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a TensorRT module offers beyond `trt_api.USED_API`; probed once."""

    name: str  # the module's
    version: str
    has_plugins: bool  # init_libnvinfer_plugins: not in the lean runtime
    has_validity: bool  # Runtime.get_engine_validity: RTX
    has_specialization: bool  # choice of kernels for dynamic shapes: RTX
    has_engine_stat: bool  # 10.14
    has_aliases: bool  # 10.15


@dataclass(frozen=True, slots=True)
class Backend:
    """A TensorRT module and what it can do."""

    trt: Any
    can: Capabilities


def open_backend(kind: Kind) -> Backend:
    """Import the first TensorRT that is installed for a kind of plan.

    Raises:
        ConfigError: None is installed, or it is too old; says which package is wanted.
    """
    return _open(kind, MODULES[kind], f"the runtime {PRODUCTS[kind]}", PACKAGES[kind])


def open_builder(kind: Kind) -> Backend:
    """Import the first TensorRT that is installed and can build a kind of plan.

    The standard one times kernels on the GPU, so the rule above holds for it; RTX needs no GPU.

    Raises:
        ConfigError: None is installed, or it is too old; says which package is wanted.
    """
    names = tuple(name for name in MODULES[kind] if "lean" not in name)
    package = names[0]
    return _open(kind, names, f"the builder {PRODUCTS[kind]}", package)


def _open(kind: Kind, names: Sequence[str], wanted: str, package: str) -> Backend:
    faults: list[str] = []
    for name in names:
        try:
            module = importlib.import_module(name)
        except (ImportError, OSError) as error:  # OSError: a shared library is missing
            faults.append(f"{name}: {error}")
            continue
        backend = Backend(module, _probe(module, name))
        if kind == "standard":
            _check_version(backend.can)
        return backend
    raise ConfigError(
        f"needs {wanted}, which cannot be imported ({'; '.join(faults)}): "
        f"install the Python package {package}"
    )


def _probe(module: Any, name: str) -> Capabilities:
    engine = module.ICudaEngine
    config = getattr(module, "IRuntimeConfig", None)
    return Capabilities(
        name=name,
        version=str(module.__version__),
        has_plugins=hasattr(module, "init_libnvinfer_plugins"),
        has_validity=hasattr(module.Runtime, "get_engine_validity"),
        has_specialization=hasattr(config, "dynamic_shapes_kernel_specialization_strategy"),
        has_engine_stat=hasattr(engine, "get_engine_stat"),
        has_aliases=hasattr(engine, "get_aliased_input_tensor"),
    )


def _check_version(can: Capabilities) -> None:
    numbers = tuple(int(part) for part in can.version.split(".")[:2] if part.isdigit())
    if numbers < OLDEST_VERSION:
        oldest = ".".join(map(str, OLDEST_VERSION))
        raise ConfigError(
            f"needs TensorRT {oldest} or newer; {can.name} {can.version} is installed: before "
            f"{oldest} contexts could not share a profile. Install a newer one and build the plan "
            "with it"
        )
