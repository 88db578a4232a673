"""What a build asks of standard TensorRT, which has no builder without a GPU: seen on the fake."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import pytest
from onnx import helper

from headrace.building import BuildOptions, Built, build_plan
from headrace.building.check import check_by_loading
from headrace.building.choice import choose_builder
from headrace.building.notation import parse_profiles
from headrace.device.sim import SimDevice
from headrace.engines.plan import read_plan_header
from headrace.engines.trt_modules import open_builder
from headrace.errors import ConfigError
from helpers.fake_builder import IBuilderConfig, Workshop, make_builder_module
from helpers.fake_plans import double_plan, write_plan
from helpers.onnx_models import FLOAT, adds, model, port
from helpers.trt_rig import GpuSim, Rig

PROFILES = parse_profiles(["x:1x4", "x:8x4"], ["x:4x4", "x:16x4"], ["x:8x4", "x:32x4"])


class Bench(Rig):
    """A machine with a GPU, the TensorRT that `install` puts there, and a model to build."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(folder, monkeypatch)
        self.patch = monkeypatch
        self.workshop = Workshop(double_plan())
        self.model = folder / "model.onnx"
        self.output = folder / "model.plan"
        self.model.write_bytes(adds(1.0).SerializeToString())

    def install_builder(self, version: str = "10.16.1.11", name: str = "tensorrt") -> None:
        module = make_builder_module(self.world, self.workshop, name, version)
        self.patch.setitem(sys.modules, name, module)

    def build(self, **options: Any) -> Built:
        wanted = BuildOptions(**{"profiles": PROFILES} | options)
        backend = open_builder("standard")
        return build_plan(backend, self.model, self.output, wanted, device=self.device)

    @property
    def config(self) -> IBuilderConfig:
        return self.workshop.configs[-1]


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path, monkeypatch)


def test_a_plan_is_built_and_loaded_on_the_gpu(bench: Bench) -> None:
    """The plan is there, its header was read, and it was loaded as a server would load it."""
    bench.install_builder()
    built = bench.build()
    assert built.header == read_plan_header(bench.output)
    assert built.check.startswith("loaded on GPU 0: a plan built by TensorRT")
    assert "2 of 2 profiles in use" in built.check
    first, second = bench.config._profiles
    assert first["x"] == ((1, 4), (4, 4), (8, 4))
    assert second["x"] == ((8, 4), (16, 4), (32, 4))
    assert bench.config._set["max_aux_streams"] == 0
    assert bench.device.leaks() == []


def test_precision_flags_of_tensorrt_10_are_set_and_read_back(bench: Bench) -> None:
    """TensorRT 10 may choose among the types that were allowed, and the account says so."""
    bench.install_builder("10.1.0")
    precision = bench.build(precisions=("fp16", "int8"), allow_tf32=False).precision
    assert bench.config._flags == {"FP16", "INT8"}
    assert precision.allowed == ("fp16", "int8")
    assert not precision.is_strongly_typed
    assert precision.describe() == (
        "chosen by TensorRT among fp32, fp16, int8; the graph's results were 1 fp32; no TF32"
    )


def test_a_strongly_typed_network_keeps_to_the_graph(bench: Bench) -> None:
    """In TensorRT 10 it is asked for by the flag's name; the account is that of the graph."""
    bench.install_builder()
    precision = bench.build(strongly_typed=True).precision
    assert precision.is_strongly_typed
    assert precision.describe().startswith("that of the graph (strongly typed)")


def test_tensorrt_11_is_always_strongly_typed(bench: Bench) -> None:
    """Without asking for it, and asking changes nothing, although the flag's number moved."""
    bench.install_builder("11.4.0.106")
    assert bench.build().precision.is_strongly_typed
    assert bench.build(strongly_typed=True).precision.is_strongly_typed


def test_all_other_options_reach_the_builder(bench: Bench) -> None:
    """Memory, level, streams, versions and hardware arrive under TensorRT's names."""
    bench.install_builder()
    bench.build(
        version_compatible=True,
        exclude_lean_runtime=True,
        hardware="ampere+",
        workspace_bytes=1 << 30,
        optimization_level=5,
        max_aux_streams=2,
    )
    assert bench.config._flags == {"TF32", "VERSION_COMPATIBLE", "EXCLUDE_LEAN_RUNTIME"}
    assert bench.config._set == {
        "WORKSPACE": 1 << 30,
        "builder_optimization_level": 5,
        "max_aux_streams": 2,
        "hardware": "AMPERE_PLUS",
    }


@pytest.mark.parametrize(
    ("version", "options", "told"),
    [
        ("11.4.0.106", {"precisions": ("fp16",)}, "--fp16: tensorrt 11.4.0.106 has no such flag"),
        ("10.16.1.11", {"compute_capabilities": ("8.6",)}, "--compute-capabilities is RTX's"),
        ("10.16.1.11", {"exclude_lean_runtime": True}, "nothing without --version-compatible"),
        (
            "10.16.1.11",
            {"precisions": ("bf16",), "strongly_typed": True},
            "--strongly-typed and --bf16 contradict",
        ),
        (
            "10.1.0",  # the fake, like 10.1, lacks it
            {"hardware": "same-compute-capability"},
            "does not have it; expected none or ampere+",
        ),
    ],
)
def test_options_that_would_have_no_effect_are_refused(
    bench: Bench, version: str, options: dict[str, Any], told: str
) -> None:
    """Before anything is built, and the text says what to do instead."""
    bench.install_builder(version)
    with pytest.raises(ConfigError) as caught:
        bench.build(**options)
    assert told in str(caught.value)
    assert bench.workshop.configs == []


def test_a_plan_that_does_not_load_is_not_left_behind(bench: Bench) -> None:
    """It was built, but a server would refuse it: the old file stays and the text says why."""
    bench.install_builder()
    bench.output.write_bytes(b"the old one")
    bench.workshop.plan = double_plan(streamable=7)
    with pytest.raises(ConfigError, match="built, but cannot be served: was built with weight str"):
        bench.build()
    assert bench.output.read_bytes() == b"the old one"
    assert sorted(bench.folder.iterdir()) == [bench.model, bench.output]
    assert bench.device.leaks() == []


def test_a_plan_with_host_code_is_checked_as_what_was_asked_for(bench: Bench) -> None:
    """A version-compatible plan carries code of its builder, which was trusted to build it."""
    bench.install_builder()
    bench.workshop.plan = double_plan(host_code=True)
    assert bench.build(version_compatible=True).check.startswith("loaded on GPU 0")


def test_a_failed_build_has_the_builders_reason(bench: Bench) -> None:
    """What the builder logged is the error, with the model's path."""
    bench.install_builder()
    bench.workshop.refusal = "Error Code 10: could not find any implementation"
    with pytest.raises(ConfigError) as caught:
        bench.build()
    assert str(caught.value) == (
        f"{bench.model}: tensorrt 10.16.1.11 cannot build it: "
        "Error Code 10: could not find any implementation"
    )


def test_the_timing_cache_grows_from_build_to_build(bench: Bench) -> None:
    """The first build writes it, the second one uses it, and neither ignores a mismatch."""
    bench.install_builder()
    cache = bench.folder / "timing.cache"
    assert not bench.build(timing_cache=cache).is_cache_used
    assert cache.read_bytes() == b"measured"
    assert bench.build(timing_cache=cache).is_cache_used
    assert cache.read_bytes() == b"measuredmeasured"


def test_a_foreign_timing_cache_is_made_anew(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """A cache of another GPU is not used, the operator is told, and the new one replaces it."""
    bench.install_builder()
    cache = bench.folder / "timing.cache"
    cache.write_bytes(b"of another GPU")
    bench.workshop.takes_cache = False
    with caplog.at_level(logging.WARNING):
        assert not bench.build(timing_cache=cache).is_cache_used
    assert "is of no use here and will be made anew" in caplog.text
    assert cache.read_bytes() == b"measured"


@pytest.mark.parametrize(
    ("wanted", "has_gpu", "installed", "taken"),
    [
        ("auto", True, ("tensorrt", "tensorrt_rtx"), "tensorrt"),
        ("auto", True, ("tensorrt_rtx",), "tensorrt_rtx"),
        ("auto", False, ("tensorrt", "tensorrt_rtx"), "tensorrt_rtx"),
        ("rtx", True, ("tensorrt", "tensorrt_rtx"), "tensorrt_rtx"),
        ("tensorrt", True, ("tensorrt", "tensorrt_rtx"), "tensorrt"),
    ],
)
def test_the_builder_is_chosen_by_what_is_here(
    bench: Bench, wanted: Any, has_gpu: bool, installed: tuple[str, ...], taken: str
) -> None:
    """Standard TensorRT where there is a GPU, else RTX."""
    for name in installed:
        bench.install_builder(name=name)
    device = bench.device if has_gpu else None
    assert choose_builder(wanted, BuildOptions(), device).can.name == taken


@pytest.mark.parametrize(
    ("wanted", "device", "installed", "told"),
    [
        ("tensorrt", None, "tensorrt", "there is no GPU here; --backend rtx builds without"),
        ("tensorrt", GpuSim(), "tensorrt_rtx", "needs the builder TensorRT, which cannot be imp"),
        ("auto", GpuSim(), "tensorrt_lean", "needs the builder TensorRT, which cannot be imported"),
        ("auto", None, "tensorrt", "there is no GPU here; needs the builder TensorRT-RTX"),
        ("auto", SimDevice(), "tensorrt", "there is no GPU here; needs the builder TensorRT-RTX"),
    ],
)
def test_without_a_builder_the_text_says_what_is_wanted(
    bench: Bench, wanted: Any, device: SimDevice | None, installed: str, told: str
) -> None:
    """The lean runtime is no builder, and a device that is no GPU is none to build on."""
    bench.install_builder(name=installed)
    with pytest.raises(ConfigError) as caught:
        choose_builder(wanted, BuildOptions(), device)
    assert told in str(caught.value)


def test_naming_compute_capabilities_means_rtx(bench: Bench) -> None:
    """Only RTX has them, so "auto" need not be told twice."""
    for name in ("tensorrt", "tensorrt_rtx"):
        bench.install_builder(name=name)
    options = BuildOptions(compute_capabilities=("8.6",))
    assert choose_builder("auto", options, bench.device).can.name == "tensorrt_rtx"


def test_a_plan_for_other_gpus_is_not_tried_on_this_one(bench: Bench) -> None:
    """It could only be refused here, and is right for where it goes: that is told, and no error."""
    path = write_plan(bench.folder, double_plan(), "vtrt")  # for compute capability 8.6
    header = read_plan_header(path)
    bench.device.compute_capability = "8.9"
    told = check_by_loading(path, header, bench.device, BuildOptions())
    assert told == "not loaded: it is not for the GPU here, of compute capability 8.9"
    bench.device.compute_capability = "8.6"
    bench.install("tensorrt_rtx", "1.7.1.116")
    assert check_by_loading(path, header, bench.device, BuildOptions()).startswith("loaded on")
    assert (
        check_by_loading(path, header, None, BuildOptions()) == "not loaded: there is no GPU here"
    )


def test_a_model_of_fixed_shapes_needs_no_profile(bench: Bench) -> None:
    """No flags, no configuration, no profile; the account says why."""
    bench.install_builder()
    row = [port("x", FLOAT, [2, 4])], [port("y", FLOAT, [2, 4])]
    bench.model.write_bytes(
        model([helper.make_node("Relu", ["x"], ["y"])], *row).SerializeToString()
    )
    built = bench.build(profiles=())
    assert built.profiles == ()
    assert built.shapes_from == "the model, which has no dynamic dimensions"
    assert bench.config._profiles == []


def test_a_named_configuration_is_taken_before_the_one_beside_the_model(bench: Bench) -> None:
    """--config wins; without it the file beside the model is found."""
    bench.install_builder()
    beside = bench.folder / "config.pbtxt"
    beside.write_text("max_batch_size: 2")
    named = bench.folder / "other.pbtxt"
    named.write_text("max_batch_size: 5")
    assert bench.build(profiles=()).profiles[0]["x"].maximum == (2, 4)
    built = bench.build(profiles=(), config_path=named)
    assert built.profiles[0]["x"].maximum == (5, 4)
    assert built.shapes_from == str(named)


def test_a_timing_cache_that_cannot_be_read_or_kept(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """Not readable: nothing is built. Not writable afterwards: the plan is kept, and it is told."""
    bench.install_builder()
    with pytest.raises(ConfigError, match="cannot be read"):
        bench.build(timing_cache=bench.folder)
    assert not bench.output.exists()
    with caplog.at_level(logging.WARNING):
        bench.build(timing_cache=bench.folder / "nowhere" / "timing.cache")
    assert "the timing cache is lost" in caplog.text
    assert bench.output.exists()
