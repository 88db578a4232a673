"""Loading a plan: which TensorRT is taken, what is refused, and what the refusal says."""

from __future__ import annotations

import json
import logging
import struct
import threading
from pathlib import Path
from typing import Any

import pytest

from headrace.device.sim import SimDevice
from headrace.engines.base import Engine, TensorSpec
from headrace.engines.trt import TrtOptions, open_engine
from headrace.engines.trt_load import LOAD_LOCK
from headrace.engines.trt_modules import Backend, open_backend
from headrace.errors import ConfigError, DeviceError
from helpers import fake_tensorrt
from helpers.fake_plans import double_plan, fill_plan, plan_bytes, tensor, write_plan
from helpers.fake_tensorrt import (
    DynamicShapesKernelSpecializationStrategy,
    EngineInvalidityDiagnostics,
    EngineValidity,
    ExecutionContextAllocationStrategy,
)
from helpers.trt_rig import Rig


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rig:
    return Rig(tmp_path, monkeypatch)


def refusal(rig: Rig, plan: dict[str, Any], **more: Any) -> ConfigError:
    """Return the error of a load, after seeing that the load left nothing behind."""
    with pytest.raises(ConfigError) as caught:
        rig.open(plan, **more)
    assert caught.value.path == str(rig.folder / "model.plan")
    assert rig.device.leaks() == []
    return caught.value


def test_a_loaded_plan_tells_its_signature_profiles_and_memory(rig: Rig) -> None:
    """Names, types, shapes, profiles, rows and bytes come from the plan."""
    rig.install()
    opened = rig.open(double_plan())
    engine: Engine = opened
    assert engine.signature.inputs == (TensorSpec("x", "FP32", (None, 4)),)
    assert engine.signature.outputs == (TensorSpec("y", "FP32", (None, 4)),)
    assert (engine.platform, engine.is_blocking) == ("tensorrt_plan", False)
    assert engine.weights_bytes == 12345
    assert [profile.index for profile in opened.profiles] == [0, 1]
    assert opened.profile_rows == (8, 32)
    assert opened.activation_bytes == 4000
    assert "TensorRT 11.4.0.106" in opened.describe()


def test_shape_tensors_are_marked(rig: Rig) -> None:
    """An input that TensorRT reads on the host is told apart, with the range of its values."""
    rig.install()
    engine = rig.open(fill_plan(), options=TrtOptions(takes_shape_tensors=True))
    x, size = engine.signature.inputs
    assert (x.is_shape_tensor, size.is_shape_tensor) == (False, True)
    assert size == TensorSpec("size", "INT64", (2,), is_shape_tensor=True)
    assert str(engine.profiles[0].values[0]) == "[1..4, 1..4]"


def test_shape_tensors_are_refused_where_nobody_passes_their_values(rig: Rig) -> None:
    """A plan that would be ready and fail every request is refused, and the input is named."""
    rig.install()
    assert "input 'size' is a shape tensor" in refusal(rig, fill_plan()).reason


@pytest.mark.parametrize(
    ("kind", "installed", "taken"),
    [
        ("ftrt", ["tensorrt", "tensorrt_lean", "tensorrt_rtx"], "tensorrt"),
        ("ftrt", ["tensorrt_bindings", "tensorrt_lean"], "tensorrt_bindings"),
        ("ftrt", ["tensorrt_lean", "tensorrt_rtx"], "tensorrt_lean"),
        ("vtrt", ["tensorrt", "tensorrt_rtx"], "tensorrt_rtx"),
        ("vtrt", ["tensorrt", "tensorrt_rtx_bindings"], "tensorrt_rtx_bindings"),
    ],
)
def test_the_magic_chooses_the_runtime(
    rig: Rig, kind: Any, installed: list[str], taken: str
) -> None:
    """Standard plans go to TensorRT or else the lean runtime, RTX plans to RTX, by either name."""
    for name in installed:
        rig.install(name)
    assert rig.open(double_plan(), kind=kind).capabilities.name == taken


@pytest.mark.parametrize(("kind", "wanted"), [("ftrt", "tensorrt"), ("vtrt", "tensorrt_rtx")])
def test_no_runtime_installed_names_the_package(rig: Rig, kind: Any, wanted: str) -> None:
    """Without the right TensorRT the text says which package to install and what was tried."""
    rig.install("tensorrt_rtx" if kind == "ftrt" else "tensorrt")
    reason = refusal(rig, double_plan(), kind=kind).reason
    assert f"install the Python package {wanted}" in reason
    assert f"{wanted}_bindings:" in reason


def test_a_tensorrt_that_is_too_old_is_refused(rig: Rig) -> None:
    """Before 10.1 contexts could not share a profile: refused by number, without touching it."""
    rig.install(version="10.0.1")
    reason = refusal(rig, double_plan()).reason
    assert "needs TensorRT 10.1 or newer; tensorrt 10.0.1 is installed" in reason
    assert rig.world.loads == []


def test_the_oldest_tensorrt_lacks_only_what_is_optional(rig: Rig) -> None:
    """A 10.1, with nothing of what later releases brought, loads and serves."""
    later = ["ICudaEngine.get_engine_stat", "ICudaEngine.get_aliased_input_tensor"]
    later += ["ICudaEngine.create_runtime_config", "IRuntimeConfig", "EngineStat"]
    rig.install(version="10.1.0", without=later)
    engine = rig.open(double_plan())
    assert engine.weights_bytes == 0
    assert engine.output_shapes([(3, 4)]) == ((3, 4),)


def test_without_a_gpu_tensorrt_is_not_even_imported(rig: Rig) -> None:
    """A device that is no GPU is refused before TensorRT is touched: the lean one would crash."""
    rig.install()
    path = write_plan(rig.folder, double_plan())
    with pytest.raises(ConfigError, match=r"needs an NVIDIA GPU, but the device is 'sim'"):
        open_engine(path, SimDevice())
    assert rig.world.loads == []


def test_a_refused_plan_tells_the_first_error_its_origin_and_what_is_here(rig: Rig) -> None:
    """The text has the first error and not its echo, the builder's version and this machine's."""
    rig.install(version="10.16.1.11")
    rig.world.refusals["deserialize_cuda_engine"] = "incompatible\n  serialization version"
    reason = refusal(rig, double_plan()).reason
    assert "tensorrt refuses it (incompatible serialization version)" in reason
    assert "built by TensorRT 11.4.0.106" in reason
    assert "here is tensorrt 10.16.1.11 on GPU 0 (virtual device, compute capability 8.6)" in reason
    assert "the releases differ: build the plan with the TensorRT that is here, or with" in reason
    assert "echo" not in reason
    assert rig.world.journal == ["runtime freed"]


@pytest.mark.parametrize(
    ("kind", "name", "version", "advice"),
    [
        ("ftrt", "tensorrt", "11.4.0.106", "build the plan with this TensorRT, on this GPU model"),
        ("ftrt", "tensorrt", "11.4.0", "build the plan with this TensorRT, on this GPU model"),
        ("ftrt", "tensorrt_lean", "11.4.0.106", "takes plans built with --version-compatible only"),
        (
            "ftrt",
            "tensorrt",
            "10.16.1.11",
            "that is here, or with an older one and --version-compa",
        ),
        (
            "vtrt",
            "tensorrt_rtx",
            "1.6.0.1",
            "the releases differ: build the plan with the TensorRT",
        ),
        ("vtrt", "tensorrt_rtx", "1.7.1.116", "for this GPU's compute capability"),
    ],
)
def test_the_advice_is_by_what_differs(
    rig: Rig, kind: Any, name: str, version: str, advice: str
) -> None:
    """A refusal ends with what to do about the difference that can be seen."""
    rig.install(name, version)
    rig.world.refusals["deserialize_cuda_engine"] = "no"
    assert advice in refusal(rig, double_plan(), kind=kind).reason


@pytest.mark.parametrize(
    ("capability", "advice"),
    [
        ("8.9", "it is not for this GPU: build it with --compute-capabilities 8.9"),
        ("12.3", "it is not for this GPU: build it for all capabilities"),
        ("9.0", "not run on GPUs of compute capability 9.0: build the plan with TensorRT"),
    ],
)
def test_the_advice_for_another_gpu_names_its_capability(
    rig: Rig, capability: str, advice: str
) -> None:
    """A plan that was not compiled for the GPU here, and one that cannot be, are told apart."""
    rig.install("tensorrt_rtx", "1.7.1.116")
    rig.device.compute_capability = capability
    rig.world.refusals["deserialize_cuda_engine"] = "no"
    assert refusal(rig, double_plan(), kind="vtrt").reason.endswith(advice)


def test_a_refusal_without_a_reason_says_so(rig: Rig) -> None:
    """Where TensorRT returns nothing and says nothing, the text does not pretend otherwise."""
    rig.install()
    rig.world.is_silent = True
    rig.world.refusals["deserialize_cuda_engine"] = "kept to itself"
    reason = refusal(rig, double_plan()).reason
    assert reason.startswith("tensorrt refuses it (without giving a reason): it is a plan")


def test_a_dead_gpu_is_told_as_such(rig: Rig) -> None:
    """A load that fails because the GPU is dead is a fault of the device, not of the file."""
    rig.install()
    rig.world.refusals["deserialize_cuda_engine"] = "CUDA error 700"
    rig.device.fail_device()
    with pytest.raises(DeviceError) as caught:
        rig.open(double_plan())
    assert caught.value.sticky


def test_host_code_loads_only_when_the_operator_allows_it(rig: Rig) -> None:
    """A plan that carries host code is refused by default, and the text names the switch."""
    rig.install()
    plan = double_plan(host_code=True)
    reason = refusal(rig, plan).reason
    assert "carries host code: trust it and pass --allow-host-code" in reason
    rig.open(plan, options=TrtOptions(allow_host_code=True))
    assert [load["allowed"] for load in rig.world.loads] == [False, True]


def test_a_wrapper_in_front_is_not_handed_over(rig: Rig) -> None:
    """TensorRT gets the plan alone, without the JSON text that an exporter put before it."""
    rig.install()
    plan = plan_bytes(double_plan())
    text = json.dumps({"task": "detect"}).encode()
    path = rig.folder / "model.engine"
    path.write_bytes(struct.pack("<I", len(text)) + text + plan)
    assert open_engine(path, rig.device).header.is_wrapped
    assert rig.world.loads[0]["size_bytes"] == len(plan)


def test_rtx_is_asked_for_validity_first(rig: Rig) -> None:
    """An RTX runtime names what is wrong with a plan; the text has its names and its reason."""
    rig.install("tensorrt_rtx", "1.7.1.116")
    bits = EngineInvalidityDiagnostics.VERSION_MISMATCH | EngineInvalidityDiagnostics.UNSUPPORTED_CC
    rig.world.validity = (EngineValidity.INVALID, int(bits))
    rig.world.refusals["get_engine_validity"] = "Supported compute capabilities: 8.0 8.6"
    reason = refusal(rig, double_plan(), kind="vtrt").reason
    assert "(VERSION_MISMATCH, UNSUPPORTED_CC: Supported compute capabilities: 8.0 8.6)" in reason
    assert "for compute capability 8.6" in reason
    assert rig.world.loads == []


def test_an_rtx_plan_that_is_only_slow_here_loads_with_a_warning(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    """A plan that runs, but not as fast as it could, is served, and the operator is told."""
    rig.install("tensorrt_rtx")
    rig.world.validity = (EngineValidity.SUBOPTIMAL, 2)
    with caplog.at_level(logging.WARNING):
        rig.open(double_plan(), kind="vtrt")
    assert "slower than it could here: UNSUPPORTED_CC" in caplog.text


def test_rtx_contexts_get_the_kernels_that_were_asked_for(rig: Rig) -> None:
    """The choice of kernels for dynamic shapes and our own memory both reach the RTX context."""
    rig.install("tensorrt_rtx")
    rig.open(double_plan(), kind="vtrt", options=TrtOptions(specialization="eager"))
    kernels = DynamicShapesKernelSpecializationStrategy
    strategies = ExecutionContextAllocationStrategy
    found = {(each._specialization, each._strategy) for each in rig.world.configs}
    assert found == {(kernels.EAGER, strategies.USER_MANAGED)}


X, Y = tensor("x", "INPUT", [-1, 4]), tensor("y", "OUTPUT", [-1, 4])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tensors": []}, ["neither inputs nor outputs"]),
        ({"streamable": 4096}, ["weight streaming", "WEIGHT_STREAMING"]),
        ({"tensors": [X | {"dtype": "FP8"}, Y]}, ["'x'", "FP8", "add a cast"]),
        (
            {"tensors": [X | {"format": "Channel major format"}, Y]},
            ["'x'", "Channel major", "row-major"],
        ),
        ({"tensors": [X, Y | {"vectorized_dim": 1}]}, ["'y'", "row-major"]),
        ({"tensors": [X, Y | {"location": "HOST"}]}, ["output 'y'", "host memory"]),
        ({"tensors": [X, Y | {"alias": "x"}]}, ["output 'y'", "memory of input 'x'"]),
        ({"op": "nonzero"}, ["[-1, 2] of output 'y'", "only after a run", "TopK"]),
        ({"profiles": [{"x": []}], "memory": [0]}, ["profile 0", "no minimum", "'x'"]),
        ({"tensors": [X, Y | {"shape": None}]}, ["'y'", "number of dimensions"]),
    ],
)
def test_what_cannot_be_served_is_refused_at_load(
    rig: Rig, changes: dict[str, Any], words: list[str]
) -> None:
    """A plan that could never answer right is refused by name, and everything of it is freed."""
    rig.install()
    reason = refusal(rig, double_plan(**changes)).reason
    for word in words:
        assert word in reason
    assert rig.world.journal[-2:] == ["engine freed", "runtime freed"]


@pytest.mark.parametrize(
    "method", ["create_execution_context", "set_optimization_profile_async", "get_tensor_shape"]
)
def test_an_engine_that_gives_no_context_is_refused_at_load(rig: Rig, method: str) -> None:
    """What already fails on the spare contexts fails the load, with the path and the reason."""
    rig.install()
    rig.world.refusals[method] = "out of luck"
    assert "out of luck" in refusal(rig, double_plan()).reason
    assert rig.world.journal[-2:] == ["engine freed", "runtime freed"]


def test_plugins_that_cannot_be_registered_are_only_warned_of(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Most plans need no plugin, so their absence is told and the load goes on."""
    monkeypatch.setitem(fake_tensorrt.PUBLIC, "init_libnvinfer_plugins", lambda *_: False)
    rig.install()
    rig.open(double_plan())
    assert "plugins cannot be registered" in caplog.text


def test_a_profile_that_the_plan_lacks_is_refused(rig: Rig) -> None:
    """Asking for a profile that is not there fails the load and names the configuration's field."""
    rig.install()
    error = refusal(rig, double_plan(), options=TrtOptions(profiles=(0, 2)))
    assert error.field == "instance_group.profile"
    assert "profile 2 is asked for, but the plan has 2" in error.reason


def test_profiles_can_be_narrowed_after_the_load(rig: Rig) -> None:
    """What is known only with the configuration narrows the profiles, and frees what they held."""
    rig.install()
    engine = rig.open(double_plan())
    engine.use_profiles([1])
    assert [profile.index for profile in engine.profiles] == [1]
    assert engine.profile_rows == (8, 32)
    assert rig.world.journal == ["context freed"]
    with pytest.raises(ConfigError, match=r"model\.plan: instance_group\.profile: profile 0"):
        engine.use_profiles([0])


def test_loads_run_one_at_a_time(rig: Rig) -> None:
    """While a plan is deserialized no other thread can load: making runtimes is not thread-safe."""
    rig.install()
    could_load: list[bool] = []

    def try_to_load() -> None:
        could_load.append(LOAD_LOCK.acquire(blocking=False))
        if could_load[-1]:
            LOAD_LOCK.release()

    def try_from_another_thread() -> None:
        thread = threading.Thread(target=try_to_load)
        thread.start()
        thread.join()

    rig.world.on_load = try_from_another_thread
    rig.open(double_plan())
    assert could_load == [False]


def test_a_file_that_vanishes_before_it_is_loaded(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that goes between header and load is a fault of the file, with its path."""
    rig.install()
    path = write_plan(rig.folder, double_plan())

    def open_backend_and_unlink(kind: Any) -> Backend:
        path.unlink()
        return open_backend(kind)

    monkeypatch.setattr("headrace.engines.trt.open_backend", open_backend_and_unlink)
    with pytest.raises(ConfigError, match=r"model\.plan: cannot be read"):
        open_engine(path, rig.device)
