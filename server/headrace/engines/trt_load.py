"""Turns a plan file into a TensorRT engine, and a failure into a text that an operator can act on.

Rules
- One load at a time in the process: making runtimes is not thread-safe, and concurrent loads have
  deadlocked between the loader's lock and CUDA's.
- The device is opened, and so proven, before any TensorRT object exists.
- A plan may carry host code; it runs only when the operator allowed it.
"""

from __future__ import annotations

import logging
import mmap
import threading
from dataclasses import dataclass
from typing import Any

from headrace.device.base import Device
from headrace.engines.plan import PRODUCTS, RTX_CAPABILITIES, PlanHeader, Version, is_for_rtx
from headrace.engines.trt_logging import ErrorTexts, make_logger, make_recorder
from headrace.engines.trt_modules import Backend
from headrace.errors import ConfigError

log = logging.getLogger(__name__)

LOAD_LOCK = threading.RLock()
"""Held while runtimes, engines and contexts are made."""


@dataclass(slots=True, eq=False)
class LoadedPlan:
    """A runtime and its engine; `close()` drops both, engine first."""

    backend: Backend
    errors: ErrorTexts  # of runtime and engine; contexts have their own
    runtime: Any
    engine: Any

    def close(self) -> None:
        """Free engine, then runtime; a second call does nothing."""
        self.engine = None
        self.runtime = None


def load_plan(
    backend: Backend, header: PlanHeader, device: Device, *, allow_host_code: bool
) -> LoadedPlan:
    """Deserialize a plan on a device.

    Raises:
        ConfigError: TensorRT refuses it; has TensorRT's first error, what the plan was built by and
            for, and what is here.
        DeviceError: The device is dead.
    """
    with LOAD_LOCK:
        device.bind_thread()
        trt = backend.trt
        errors = ErrorTexts()
        logger = make_logger(trt, header.path.name, errors)
        if backend.can.has_plugins and not trt.init_libnvinfer_plugins(logger, ""):
            log.warning("TensorRT's plugins cannot be registered: %s", errors.take_first())
        runtime = trt.Runtime(logger)
        runtime.error_recorder = make_recorder(trt, errors)
        if allow_host_code:
            runtime.engine_host_code_allowed = True
        engine = _deserialize(backend, runtime, header, errors)
        if engine is None:
            device.check()
            raise _refusal(backend, header, device, errors.take_first())
        return LoadedPlan(backend, errors, runtime, engine)


def _deserialize(backend: Backend, runtime: Any, header: PlanHeader, errors: ErrorTexts) -> Any:
    """Hand the mapped file to TensorRT, which copies what it needs; None when it refuses."""
    with (
        _mapped(header) as mapped,
        memoryview(mapped) as everything,
        everything[header.offset_bytes :] as plan,
    ):
        if backend.can.has_validity and not _is_valid(backend.trt, runtime, plan, header, errors):
            return None
        return runtime.deserialize_cuda_engine(plan)


def _mapped(header: PlanHeader) -> mmap.mmap:
    try:
        with header.path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:  # ValueError: it became empty
        raise ConfigError(f"cannot be read: {error}", path=str(header.path)) from error


def _is_valid(
    trt: Any, runtime: Any, plan: memoryview, header: PlanHeader, errors: ErrorTexts
) -> bool:
    """Ask an RTX runtime before loading; it names what is wrong, where loading only fails."""
    validity, bits = runtime.get_engine_validity(plan)
    flags = trt.EngineInvalidityDiagnostics.__members__
    names = ", ".join(name for name, flag in flags.items() if bits & int(flag))
    if validity == trt.EngineValidity.INVALID:
        reason = errors.take_first()
        errors.add(None, f"{names}: {reason}" if names and reason else names or reason)
        return False
    if validity == trt.EngineValidity.SUBOPTIMAL:
        log.warning("%s will run slower than it could here: %s", header.path, names)
    return True


def _refusal(backend: Backend, header: PlanHeader, device: Device, reason: str) -> ConfigError:
    about = [getattr(device, "name", "")]
    capability = str(getattr(device, "compute_capability", ""))
    about += [f"compute capability {capability}"] if capability else []
    here = f"{backend.can.name} {backend.can.version} on GPU {device.index} ({', '.join(about)})"
    return ConfigError(
        f"{backend.can.name} refuses it ({reason or 'without giving a reason'}): it is "
        f"{header.describe()}; here is {here}; {_mend(backend, header, capability, reason)}",
        path=str(header.path),
    )


def _mend(backend: Backend, header: PlanHeader, capability: str, reason: str) -> str:
    """Say what to do, by what is seen to differ between the plan and this machine.

    It is never more than advice: whether they fit is the runtime's to say, and it said no.
    """
    if "HostCodeAllowed" in reason:
        return "it carries host code: trust it and pass --allow-host-code, or build it without"
    if header.kind == "rtx" and capability and not is_for_rtx(capability):
        return (
            f"{PRODUCTS['rtx']} does not run on GPUs of compute capability {capability}: build the "
            f"plan with {PRODUCTS['standard']}"
        )
    if header.version and not _is_release(header.version, backend.can.version):
        differ = (
            f"the releases differ: build the plan with the {PRODUCTS[header.kind]} that is here"
        )
        older = ", or with an older one and --version-compatible"
        return differ if header.kind == "rtx" else differ + older
    if header.kind == "rtx":
        if capability and not header.is_for(capability):
            named = capability in RTX_CAPABILITIES  # newer ones have one bit together, and no name
            how = f"with --compute-capabilities {capability}" if named else "for all capabilities"
            return f"it is not for this GPU: build it {how}"
        return "build the plan with this TensorRT-RTX, for this GPU's compute capability"
    if "lean" in backend.can.name:
        return "the lean runtime takes plans built with --version-compatible only"
    return "build the plan with this TensorRT, on this GPU model"


def _is_release(version: Version, text: str) -> bool:
    """Say whether a module's version, which may be shortened, is that of a plan's builder."""
    numbers = tuple(int(part) for part in text.split(".")[:4] if part.isdigit())
    return version[: len(numbers)] == numbers
