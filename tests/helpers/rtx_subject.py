"""Builds RTX plans, and loads plans through the adapter, with the real runtime and no GPU.

A script, run in a process of its own because the runtime is 230 MB that a test run need not keep:

    python rtx_subject.py build PATH 8.6,8.9     "" is the builder's own choice of capabilities
    python rtx_subject.py load PATH [--unasked]  print the refusal; --unasked: no validity check
                                    [--capability 9.0]  as on a GPU of that compute capability
    python rtx_subject.py facts                  print what the runtime says about itself
"""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from headrace.device.sim import SimDevice
from headrace.engines.plan import read_plan_header
from headrace.engines.trt_load import load_plan
from headrace.engines.trt_logging import ErrorTexts, make_logger
from headrace.engines.trt_modules import Backend, open_backend
from headrace.errors import ConfigError

trt: Any = importlib.import_module("tensorrt_rtx_bindings")


def build(path: Path, capabilities: str) -> None:
    """Build y = x over (1 to 8, 4) floats; the builder works on a CPU."""
    builder = trt.Builder(make_logger(trt, "builder", ErrorTexts()))
    network = builder.create_network(0)
    x = network.add_input("x", trt.DataType.FLOAT, (-1, 4))
    layer = network.add_identity(x)
    layer.get_output(0).name = "y"
    network.mark_output(layer.get_output(0))
    config = builder.create_builder_config()
    profile = builder.create_optimization_profile()
    profile.set_shape("x", (1, 4), (4, 4), (8, 4))
    config.add_optimization_profile(profile)
    wanted = [f"SM{each.replace('.', '')}" for each in capabilities.split(",") if each]
    if wanted:
        config.num_compute_capabilities = len(wanted)
        for position, name in enumerate(wanted):
            config.set_compute_capability(trt.ComputeCapability.__members__[name], position)
    path.write_bytes(builder.build_serialized_network(network, config))


class Gpu(SimDevice):
    """The virtual device with the compute capability that a GPU would tell."""

    compute_capability = ""


def load(path: Path, *, is_unasked: bool, capability: str = "") -> str:
    """Return the text of the refusal: there is no GPU here, so there is one."""
    backend = open_backend("rtx")
    if is_unasked:
        backend = Backend(backend.trt, replace(backend.can, has_validity=False))
    gpu = Gpu()
    gpu.compute_capability = capability
    try:
        load_plan(backend, read_plan_header(path), gpu, allow_host_code=False)
    except ConfigError as error:
        return str(error)
    return ""


def facts() -> dict[str, Any]:
    """Return what the runtime says about itself."""
    runtime = trt.Runtime(make_logger(trt, "facts", ErrorTexts()))
    return {"version": trt.__version__, "header_bytes": runtime.engine_header_size}


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["build", path, capabilities]:
            build(Path(path), capabilities)
        case ["load", path, "--capability", capability]:
            print(json.dumps(load(Path(path), is_unasked=True, capability=capability)))
        case ["load", path, *options]:
            print(json.dumps(load(Path(path), is_unasked="--unasked" in options)))
        case ["facts"]:
            print(json.dumps(facts()))
        case _:
            sys.exit(__doc__)
