"""Turns build options into an `IBuilderConfig`, and refuses what this TensorRT does not have.

A flag is looked up by name each time: the sets of flags differ between releases, and their numbers
do too. Asking for what is not there is an error and not a note, since a plan in another precision
than the one asked for would look like a success.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace.building.notation import Shapes
from headrace.building.options import HARDWARE, BuildOptions
from headrace.building.shapes import NetworkTensor
from headrace.building.tools import Tools
from headrace.engines.trt_modules import Backend
from headrace.errors import ConfigError


def check_options(backend: Backend, options: BuildOptions) -> None:
    """Refuse options that this TensorRT does not have, before anything is parsed.

    Raises:
        ConfigError: Names the flag, what it wants and what to do instead.
    """
    trt, here = backend.trt, f"{backend.can.name} {backend.can.version}"
    for precision in options.precisions:
        if not hasattr(trt.BuilderFlag, precision.upper()):
            raise ConfigError(
                f"--{precision}: {here} has no such flag; since TensorRT 11.0, and in RTX, the "
                "precision is that of the graph: convert the model (NVIDIA's ModelOpt AutoCast "
                "does) and build it without the flag"
            )
    if options.strongly_typed and options.precisions:
        raise ConfigError(
            f"--strongly-typed and --{options.precisions[0]} contradict each other: the first "
            "keeps to the types of the graph"
        )
    if options.exclude_lean_runtime and not options.version_compatible:
        raise ConfigError("--exclude-lean-runtime means nothing without --version-compatible")
    if is_rtx(backend):
        _check_rtx(options, here)
    elif options.compute_capabilities:
        raise ConfigError(
            f"--compute-capabilities is RTX's; {here} builds for the GPU that it builds on: see "
            "--hardware-compatibility"
        )
    member = HARDWARE[options.hardware]
    if not hasattr(trt.HardwareCompatibilityLevel, member):
        raise ConfigError(
            f"--hardware-compatibility {options.hardware}: {here} does not have it; "
            "expected none or ampere+"
        )


def is_rtx(backend: Backend) -> bool:
    """Say whether this is the RTX builder: it takes a list of compute capabilities, and no GPU."""
    return hasattr(backend.trt.IBuilderConfig, "num_compute_capabilities")


def _check_rtx(options: BuildOptions, here: str) -> None:
    if options.version_compatible:
        raise ConfigError(
            f"--version-compatible: {here} cannot; an RTX plan runs on the release that built it"
        )
    if options.hardware != "none":
        raise ConfigError(
            f"--hardware-compatibility: {here} ignores it; name GPUs by --compute-capabilities"
        )
    if options.timing_cache is not None:
        raise ConfigError(f"--timing-cache: {here} times nothing when it builds: leave it out")


def make_config(
    tools: Tools,
    options: BuildOptions,
    inputs: Sequence[NetworkTensor],
    profiles: Sequence[Shapes],
) -> Any:
    """Return the configuration of a build; call `check_options` before.

    Raises:
        ConfigError: TensorRT refuses a profile or a compute capability; has its reason.
    """
    trt, config = tools.trt, tools.builder.create_builder_config()
    for name in _flags(options):
        config.set_flag(getattr(trt.BuilderFlag, name))
    if not options.allow_tf32:
        config.clear_flag(trt.BuilderFlag.TF32)
    if options.hardware != "none":
        level = getattr(trt.HardwareCompatibilityLevel, HARDWARE[options.hardware])
        config.hardware_compatibility_level = level
    if options.workspace_bytes is not None:
        config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, options.workspace_bytes)
    if options.optimization_level is not None:
        config.builder_optimization_level = options.optimization_level
    config.max_aux_streams = options.max_aux_streams
    if options.compute_capabilities:
        _set_capabilities(trt, config, options.compute_capabilities)
    shape_tensors = {each.name for each in inputs if each.is_shape_tensor}
    for index, shapes in enumerate(profiles):
        profile = _profile(tools.builder, shapes, shape_tensors)
        if config.add_optimization_profile(profile) < 0:
            raise ConfigError(f"profile {index} is refused: {tools.reason()}")
    return config


def _flags(options: BuildOptions) -> list[str]:
    """Return the members of `BuilderFlag` to set."""
    names = [precision.upper() for precision in options.precisions]
    names += ["VERSION_COMPATIBLE"] if options.version_compatible else []
    return names + (["EXCLUDE_LEAN_RUNTIME"] if options.exclude_lean_runtime else [])


def _profile(builder: Any, shapes: Shapes, shape_tensors: set[str]) -> Any:
    profile = builder.create_optimization_profile()
    for name, each in shapes.items():
        bounds = each.minimum, each.optimum, each.maximum
        if name in shape_tensors:
            profile.set_shape_input(name, *map(list, bounds))
        else:
            profile.set_shape(name, *bounds)
    return profile


def _set_capabilities(trt: Any, config: Any, wanted: Sequence[str]) -> None:
    known = {
        _dotted(name): member
        for name, member in trt.ComputeCapability.__members__.items()
        if name.startswith("SM")
    }
    config.num_compute_capabilities = len(wanted)
    for position, capability in enumerate(wanted):
        if capability not in known:
            raise ConfigError(
                f"--compute-capabilities: there is no {capability!r}; expected some of "
                f"{', '.join(known)}"
            )
        if not config.set_compute_capability(known[capability], position):
            raise ConfigError(f"--compute-capabilities: {capability} is refused here")


def _dotted(name: str) -> str:
    """Write SM86 as 8.6 and SM120 as 12.0."""
    digits = name.removeprefix("SM")
    return f"{digits[:-1]}.{digits[-1]}"
