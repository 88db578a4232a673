"""What the trial of a full TensorRT builds: a small model, and its plans by `headrace build`."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

NEEDED = ("tensorrt", "cuda.bindings", "onnxruntime", "grpc", "google.protobuf", "click", "rich")
PROFILES = ("--min=x:1x64", "--opt=x:8x64", "--max=x:16x64")
SECOND_PROFILE = ("--min=x:16x64", "--opt=x:24x64", "--max=x:32x64")
NUM_LAYERS, WIDTH = 3, 64


def absent() -> list[str]:
    """Return which packages of the trial cannot be imported."""
    return [name for name in NEEDED if not _is_there(name)]


def _is_there(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # of the package around it
        return False


def write_layers(path: Path) -> Path:
    """Write a model of three layers, FP32, with the batch dimension free: `x` → `y`."""
    rng = np.random.default_rng(5)
    nodes, weights = [], []
    for index in range(NUM_LAYERS):
        source = f"r{index - 1}" if index else "x"
        result = f"r{index}" if index < NUM_LAYERS - 1 else "y"
        values = rng.standard_normal((WIDTH, WIDTH), np.float32) / 8
        weights.append(numpy_helper.from_array(values, f"w{index}"))
        nodes.append(helper.make_node("MatMul", [source, f"w{index}"], [f"m{index}"]))
        nodes.append(helper.make_node("Relu", [f"m{index}"], [result]))
    x, y = (
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", WIDTH]) for name in "xy"
    )
    graph = helper.make_graph(nodes, "layers", [x], [y], weights)
    opset = [helper.make_opsetid("", 17)]
    path.write_bytes(
        helper.make_model(graph, opset_imports=opset, ir_version=9).SerializeToString()
    )
    return path


@dataclass(frozen=True)
class Ran:
    """A build that ended."""

    code: int
    account: dict[str, Any]
    stderr: str


def build(model: Path, output: Path, *options: str, backend: str = "tensorrt") -> Ran:
    """Run `headrace build` in a process of its own."""
    command = [sys.executable, "-c", "from headrace.cli import main; main()", "build", str(model)]
    ran = subprocess.run(
        [*command, "-o", str(output), "--json", "--backend", backend, *options],
        capture_output=True,
        text=True,
        check=False,
    )
    return Ran(ran.returncode, json.loads(ran.stdout) if ran.stdout else {}, ran.stderr)
