"""The trial of a real TensorRT is itself right on a GPU: tried with the stand-in."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from headrace.building import BuildOptions, build_plan
from headrace.building.choice import choose_builder
from headrace.building.notation import parse_profiles
from headrace.engines.trt import open_engine
from helpers.fake_plans import double_plan, write_plan
from helpers.plan_trial import run_captured, run_side_by_side

if TYPE_CHECKING:
    from helpers.standin_rig import StandinRig

pytestmark = pytest.mark.gpu


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, needs_gpu: None) -> Iterator[StandinRig]:
    """GPU 0 with the stand-in; in the end nothing may be open on it."""
    from helpers.standin_rig import StandinRig

    rig = StandinRig(tmp_path, monkeypatch)
    yield rig
    assert rig.finish() == []


def test_batches_side_by_side_are_each_right(rig: StandinRig, tmp_path: Path) -> None:
    """Batches of both profiles, in flight together on four streams, come back doubled."""
    engine = open_engine(write_plan(tmp_path, double_plan()), rig.device)
    rig.world.wait_ns = 1_000_000
    rng = np.random.default_rng(3)
    batches = [rng.random((1 + index % 32, 4), np.float32) for index in range(40)]
    found = run_side_by_side(engine, rig.device, batches, num_contexts=4)
    for x, y in zip(batches, found, strict=True):
        np.testing.assert_array_equal(y, 2 * x)
    engine.close()


def test_captured_batches_are_each_right(rig: StandinRig, tmp_path: Path) -> None:
    """A replay uses what lies at the captured addresses now."""
    engine = open_engine(write_plan(tmp_path, double_plan()), rig.device)
    batches = [np.full((4, 4), value, np.float32) for value in (1, 2, 3)]
    for x, y in zip(batches, run_captured(engine, rig.device, batches), strict=True):
        np.testing.assert_array_equal(y, 2 * x)
    assert [run.is_captured for run in rig.world.runs] == [False, True]
    engine.close()


def test_what_is_built_is_loaded_on_the_gpu_at_hand(
    rig: StandinRig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A build ends with a load on the real device, and leaves nothing open there."""
    from helpers.fake_builder import Workshop, make_builder_module
    from helpers.full_trial import write_layers

    module = make_builder_module(rig.world, Workshop(double_plan()))
    monkeypatch.setitem(sys.modules, "tensorrt", module)
    options = BuildOptions(profiles=parse_profiles(["x:1x64"], ["x:8x64"], ["x:16x64"]))
    backend = choose_builder("auto", options, rig.device)
    model = write_layers(tmp_path / "layers.onnx")
    built = build_plan(backend, model, tmp_path / "layers.plan", options, device=rig.device)
    assert built.check.startswith("loaded on GPU 0: a plan built by TensorRT")
    assert (tmp_path / "layers.plan").exists()
