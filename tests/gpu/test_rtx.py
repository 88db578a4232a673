"""The real TensorRT-RTX on a GPU: built, asked whether it fits, loaded and run, or refused."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from headrace.building import BuildOptions, Built, build_plan
from headrace.building.notation import parse_profiles
from headrace.engines.plan import RTX_CAPABILITIES, is_for_rtx
from headrace.engines.trt import open_engine
from headrace.engines.trt_modules import Backend, open_backend
from headrace.errors import ConfigError
from helpers.full_trial import WIDTH, write_layers

if TYPE_CHECKING:
    from headrace.device.cudart import CudartDevice
    from helpers.device_rig import Rig

pytestmark = pytest.mark.gpu

RTX = ("tensorrt_rtx", "tensorrt_rtx_bindings")
SHAPES = parse_profiles(["x:1x64"], ["x:8x64"], ["x:16x64"])


@pytest.fixture
def rtx(rig: Rig) -> Backend:
    """TensorRT-RTX; the device was opened before it."""
    if not any(map(find_spec, RTX)):
        pytest.skip(f"TensorRT-RTX is not installed: {' or '.join(RTX)}")
    return open_backend("rtx")


@pytest.fixture
def gpu(rig: Rig) -> Any:
    return rig.device


@pytest.fixture
def bench(rtx: Backend, gpu: CudartDevice, tmp_path: Path) -> Iterator[Bench]:
    yield Bench(rtx, gpu, tmp_path)
    gpu.check()


class Bench:
    """A model, and plans of it."""

    def __init__(self, rtx: Backend, gpu: CudartDevice, folder: Path) -> None:
        self.rtx, self.gpu = rtx, gpu
        self.model = write_layers(folder / "layers.onnx")
        self.plan = folder / "layers.plan"

    def build(self, *capabilities: str) -> Built:
        options = BuildOptions(profiles=SHAPES, compute_capabilities=capabilities, allow_tf32=False)
        return build_plan(self.rtx, self.model, self.plan, options, device=self.gpu)

    def refusal(self) -> str:
        with pytest.raises(ConfigError) as caught:
            open_engine(self.plan, self.gpu)
        assert "\n" not in str(caught.value)
        return str(caught.value)


def test_a_build_says_whether_the_plan_was_tried(bench: Bench) -> None:
    """With every capability in it: loaded where RTX supports the GPU, else told that it is not."""
    built = bench.build()
    capability = bench.gpu.compute_capability
    if is_for_rtx(capability):
        assert built.check.startswith("loaded on GPU 0: a plan built by TensorRT-RTX")
    else:
        expected = f"not loaded: it is not for the GPU here, of compute capability {capability}"
        assert built.check == expected


def test_a_plan_for_another_gpu_is_refused_with_rtxs_diagnosis(bench: Bench) -> None:
    """What the runtime finds is named, beside what the plan is for and what is here."""
    capability = bench.gpu.compute_capability
    other = next(each for each in RTX_CAPABILITIES[1:4] if each != capability)
    bench.build(other)
    text = bench.refusal()
    assert "UNSUPPORTED_CC" in text
    assert f"for compute capability {other}; here is" in text
    assert f"compute capability {capability})" in text


def test_a_plan_of_another_release_is_refused_with_rtxs_diagnosis(bench: Bench) -> None:
    """The runtime sees the release in the header, as we do, and both are in the text."""
    bench.build()
    content = bytearray(bench.plan.read_bytes())
    content[24:28] = bytes((1, 6, 0, 99))
    bench.plan.write_bytes(content)
    text = bench.refusal()
    assert "VERSION_MISMATCH" in text
    assert "built by TensorRT-RTX 1.6.0.99" in text
    assert f"here is {bench.rtx.can.name} {bench.rtx.can.version}" in text


def test_a_broken_plan_is_refused(bench: Bench) -> None:
    """Garbage behind a good header gives a text with a reason, and leaves the GPU alive."""
    bench.build()
    content = bench.plan.read_bytes()
    bench.plan.write_bytes(content[:64] + bytes(len(content) - 64))
    assert "without giving a reason" not in bench.refusal()


def test_answers_are_those_of_onnx_runtime(bench: Bench) -> None:
    """Contexts side by side, on a GPU that RTX supports."""
    from helpers.plan_trial import run_side_by_side
    from helpers.serve_trial import expected

    if not is_for_rtx(bench.gpu.compute_capability):
        pytest.skip(f"RTX does not run on compute capability {bench.gpu.compute_capability}")
    bench.build()
    engine = open_engine(bench.plan, bench.gpu)
    rng = np.random.default_rng(11)
    given = [rng.standard_normal((1 + index % 16, WIDTH), np.float32) for index in range(32)]
    found = run_side_by_side(engine, bench.gpu, given, num_contexts=4)
    engine.close()
    for x, y in zip(given, found, strict=True):
        np.testing.assert_allclose(y, expected(bench.model, x), rtol=1e-4, atol=1e-5)
