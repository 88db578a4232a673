"""ONNX Runtime's sessions for a GPU, as far as the package without CUDA can tell."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import onnxruntime
import pytest

from headrace.device.base import Device
from headrace.engines.ort import OrtEngine
from headrace.engines.ort_session import cpu_operators, open_signature_session
from headrace.errors import ConfigError
from helpers import onnx_models

GPU = cast("Device", SimpleNamespace(kind="cudart", index=0))


@pytest.mark.skipif(
    "CUDAExecutionProvider" in onnxruntime.get_available_providers(),
    reason="this onnxruntime has the CUDA provider",
)
def test_a_package_without_cuda_is_told_of(tmp_path: Path) -> None:
    """The text names the package to install, and the way that needs none."""
    path = onnx_models.save(onnx_models.adds(1), tmp_path / "model.onnx")
    with pytest.raises(ConfigError, match=r"\[onnxruntime-gpu\].*--device host"):
        OrtEngine(path, GPU)


def test_operators_on_the_cpu_are_counted(tmp_path: Path) -> None:
    """By ONNX Runtime's own account of who runs what."""
    path = onnx_models.save(onnx_models.adds(1), tmp_path / "model.onnx")
    settings = onnxruntime.SessionOptions()
    settings.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    session: Any = onnxruntime.InferenceSession(
        str(path), settings, providers=["CPUExecutionProvider"]
    )
    assert cpu_operators(session) == {"Add": 1}


def test_a_session_that_keeps_no_account_counts_nothing(tmp_path: Path) -> None:
    """Older versions, and sessions that were not asked to keep one."""
    path = onnx_models.save(onnx_models.adds(1), tmp_path / "model.onnx")
    assert not cpu_operators(open_signature_session(path))
    assert not cpu_operators(object())
