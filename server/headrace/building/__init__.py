"""Builds plans from ONNX models, before any serving: with TensorRT or TensorRT-RTX, by one code."""

from __future__ import annotations

from headrace.building.build import Built, build_plan
from headrace.building.options import BuildOptions

__all__ = ["BuildOptions", "Built", "build_plan"]
