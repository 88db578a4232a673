"""Fixtures of the GPU tests: skipped, with the reason, where CUDA finds no GPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from helpers.cuda_owner import ROOM, Owner
from helpers.device_rig import Rig

if TYPE_CHECKING:
    from helpers.server import Server

pytest.register_assert_rewrite("helpers.device_contract", "helpers.graph_contract")


@pytest.fixture(scope="module")
def needs_gpu() -> None:
    """A GPU that CUDA finds."""
    pytest.importorskip("cuda.bindings.runtime", reason="cuda-bindings is not installed")
    from headrace.device.cudart import count_devices

    num_devices, why_none = count_devices()
    if not num_devices:
        pytest.skip(str(why_none))


@pytest.fixture(scope="module")
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


@pytest.fixture(scope="module")
def shm_server(
    needs_cuda_provider: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """`headrace serve` on GPU 0 with regions, and identities by ONNX Runtime's provider."""
    pytest.importorskip("ml_dtypes", reason="ml_dtypes, which makes the models, is not installed")
    from helpers.server import launcher, serving
    from load.models import write_repository

    folder = tmp_path_factory.mktemp("served")
    models = write_repository(folder / "models", ["identity_uint8", "identity_6mb"])
    arguments = ("--model-repository", models, "--device", "cudart", "--allow-client-shm")
    with serving(*arguments, headrace=launcher(folder)) as server:
        yield server
