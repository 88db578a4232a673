"""Fixtures of the GPU tests: skipped, with the reason, where CUDA finds no GPU."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from helpers.cuda_owner import ROOM, Owner
from helpers.device_rig import Rig

pytest.register_assert_rewrite("helpers.device_contract", "helpers.graph_contract")


@pytest.fixture
def needs_gpu() -> None:
    """A GPU that CUDA finds."""
    pytest.importorskip("cuda.bindings.runtime", reason="cuda-bindings is not installed")
    from headrace.device.cudart import count_devices

    num_devices, why_none = count_devices()
    if not num_devices:
        pytest.skip(str(why_none))


@pytest.fixture
def needs_cuda_provider(needs_gpu: None) -> None:
    """A GPU, and the package of ONNX Runtime that can use it."""
    ort = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    if "CUDAExecutionProvider" not in ort.get_available_providers():
        pytest.skip("this onnxruntime is the package without CUDA; onnxruntime-gpu has it")


@pytest.fixture
def rig(needs_gpu: None) -> Iterator[Rig]:
    """GPU 0, with everything that the test opens on it closed afterwards."""
    from helpers.cudart_rig import CudartRig

    with CudartRig() as rig:
        yield rig


@pytest.fixture
def owner(needs_gpu: None) -> Iterator[Owner]:
    """A process that shares ROOM bytes of GPU 0."""
    with Owner(ROOM) as owner:
        yield owner
