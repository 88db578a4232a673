"""Plans for the fake TensorRT: the header of a real one, and an engine told in JSON behind it."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any, Literal

from helpers.fake_tensorrt import HEADER_BYTES

Mode = Literal["INPUT", "OUTPUT"]

FILL_CONFIG = """
input { name: "x" data_type: TYPE_FP32 dims: [ -1 ] }
input { name: "size" data_type: TYPE_INT64 dims: [ 2 ] is_shape_tensor: true }
output { name: "y" data_type: TYPE_FP32 dims: [ -1, -1 ] }
"""
"""Without a batch dimension: the fill plan's first dimensions mean nothing to each other."""


def tensor(
    name: str, mode: Mode, shape: list[int], dtype: str = "FLOAT", **more: Any
) -> dict[str, Any]:
    """Describe a tensor; `more` has location, format, vectorized_dim and alias."""
    return {"name": name, "mode": mode, "shape": shape, "dtype": dtype} | more


def double_plan(**changes: Any) -> dict[str, Any]:
    """Y = 2 x over (n, 4) floats: 1 to 8 rows on profile 0, 8 to 32 on profile 1."""
    return {
        "op": "double",
        "tensors": [tensor("x", "INPUT", [-1, 4]), tensor("y", "OUTPUT", [-1, 4])],
        "profiles": [{"x": [[1, 4], [4, 4], [8, 4]]}, {"x": [[8, 4], [16, 4], [32, 4]]}],
        "memory": [1000, 4000],
        "weights": 12345,
    } | changes


def fill_plan(**changes: Any) -> dict[str, Any]:
    """The sum of x (n,) in every element of a matrix whose shape is the shape tensor `size`."""
    return {
        "op": "fill",
        "tensors": [
            tensor("x", "INPUT", [-1]),
            tensor("size", "INPUT", [2], "INT64", location="HOST"),
            tensor("y", "OUTPUT", [-1, -1]),
        ],
        "profiles": [{"x": [[1], [4], [8]], "size:values": [[1, 1], [2, 3], [4, 4]]}],
        "memory": [0],
    } | changes


def plan_bytes(plan: dict[str, Any], kind: Literal["ftrt", "vtrt"] = "ftrt") -> bytes:
    """Return a plan file: header and JSON."""
    text = json.dumps(plan).encode()
    version = (11, 4, 0, 106) if kind == "ftrt" else (1, 7, 1, 116)
    head = bytearray(HEADER_BYTES)
    head[:4] = kind.encode()
    head[24:28] = bytes(version)
    if kind == "vtrt":
        struct.pack_into("<Q", head, 16, HEADER_BYTES + len(text))
        struct.pack_into("<I", head, 32, 0b100)  # compute capability 8.6
    return bytes(head) + text


def write_plan(folder: Path, plan: dict[str, Any], kind: Literal["ftrt", "vtrt"] = "ftrt") -> Path:
    """Write a plan file and return its path."""
    path = folder / "model.plan"
    path.write_bytes(plan_bytes(plan, kind))
    return path
