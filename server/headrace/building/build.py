"""Builds a plan: the model is parsed, shapes are fitted, TensorRT builds, the plan is proven.

The build itself runs on a thread of its own, since it may take minutes in one call: the calling
thread stays free to hear Ctrl-C, which ends the build after its present step.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headrace.building.check import check_by_loading
from headrace.building.network import Network, create_network, parse
from headrace.building.notation import Shapes
from headrace.building.options import BuildOptions
from headrace.building.output import check_writable, replacing
from headrace.building.precision import Precision, read_precision
from headrace.building.progress import Listener, Progress, make_monitor
from headrace.building.settings import check_options, make_config
from headrace.building.shapes import fit, from_config, require
from headrace.building.timing_cache import keep_timing_cache, use_timing_cache
from headrace.building.tools import Tools, open_tools
from headrace.device.base import Device
from headrace.engines.pbtxt import read_config
from headrace.engines.plan import PlanHeader, read_plan_header
from headrace.engines.trt_modules import Backend, Capabilities
from headrace.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Built:
    """What came of a build.

    Attributes:
        header: The plan's own, read back; None after a dry run.
        check: What loading it showed, or why it was not loaded.
        shapes_from: Where the profiles come from.
        is_cache_used: The timing cache of an earlier build was of use.
    """

    builder: Capabilities
    network: Network
    profiles: tuple[Shapes, ...]
    shapes_from: str
    precision: Precision
    header: PlanHeader | None = None
    check: str = ""
    is_cache_used: bool = False


def build_plan(
    backend: Backend,
    model: Path,
    output: Path,
    options: BuildOptions,
    *,
    device: Device | None = None,
    listener: Listener | None = None,
    is_dry_run: bool = False,
) -> Built:
    """Build a plan and write it, or leave things as they were.

    Args:
        backend: A TensorRT with a builder.
        model: The ONNX file.
        output: The plan's file; replaced only by a plan that is proven as far as it can be here.
        options: How to build.
        device: The GPU here, to load the plan on; None when there is none.
        listener: Hears how far the build is.
        is_dry_run: Stop before the build: the model is parsed and everything about it checked.

    Raises:
        ConfigError: The model, an option or the output is wrong; says which and how to mend it.
        KeyboardInterrupt: The build was ended from outside.
    """
    check_options(backend, options)
    if not is_dry_run:
        check_writable(output)
    tools = open_tools(backend)
    network = parse(tools, create_network(tools, strongly_typed=options.strongly_typed), model)
    profiles, shapes_from = _profiles(network, model, options)
    config = make_config(tools, options, network.inputs, profiles)
    precision = read_precision(tools, config, network)
    built = Built(backend.can, network, profiles, shapes_from, precision)
    if is_dry_run:
        return built
    cache = options.timing_cache
    is_cache_used = cache is not None and use_timing_cache(tools, config, cache)
    plan = _build(tools, network, config, Progress(listener), model)
    if cache is not None:
        keep_timing_cache(config, cache)
    with replacing(output, plan) as path:
        header = replace(read_plan_header(path), path=output)
        check = check_by_loading(path, header, device, options)
    return replace(built, header=header, check=check, is_cache_used=is_cache_used)


def _profiles(
    network: Network, model: Path, options: BuildOptions
) -> tuple[tuple[Shapes, ...], str]:
    """Return the profiles, and where they come from."""
    if options.profiles:
        fitted = tuple(shapes for shapes in fit(network.inputs, options.profiles) if shapes)
        return fitted, "--min, --opt and --max"
    if not any(each.wants_bounds for each in network.inputs):
        return (), "the model, which has no dynamic dimensions"
    path = options.config_path or find_config(model)
    if path is None:
        require(network.inputs)
        return (), ""
    return from_config(network.inputs, read_config(path), str(path)), str(path)


def find_config(model: Path) -> Path | None:
    """Return the config.pbtxt beside a model, or above it where the model is in a version's folder.

    That is where Triton's layout has it: MODEL/config.pbtxt for MODEL/1/model.onnx.
    """
    folder = model.resolve().parent
    candidates = [folder, folder.parent] if folder.name.isdecimal() else [folder]
    found = [each / "config.pbtxt" for each in candidates if (each / "config.pbtxt").is_file()]
    return found[0] if found else None


def _build(tools: Tools, network: Network, config: Any, progress: Progress, model: Path) -> Any:
    """Return the plan's bytes, as something with the buffer protocol."""
    config.progress_monitor = make_monitor(tools.trt, progress)
    tools.errors.clear()  # what was said before was not fatal
    with ThreadPoolExecutor(1, thread_name_prefix="build") as thread:
        try:
            build = tools.builder.build_serialized_network
            plan = thread.submit(build, network.definition, config).result()
        except BaseException:  # Ctrl-C, whatever it is turned into
            progress.cancel()
            raise
    if plan is None:
        told = f"{tools.can.name} {tools.can.version} cannot build it: {tools.reason()}"
        raise ConfigError(told, path=str(model))
    return plan
