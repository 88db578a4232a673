"""The trial of a real TensorRT is itself right: tried with the fake one on the virtual device."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from helpers.fake_plans import double_plan
from helpers.plan_trial import run_captured, run_side_by_side
from helpers.trt_rig import Rig


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rig:
    return Rig(tmp_path, monkeypatch)


def test_batches_side_by_side_are_each_right(rig: Rig) -> None:
    """Batches of several profiles over several contexts come back doubled, and nothing leaks."""
    rig.install()
    engine = rig.open(double_plan())
    rng = np.random.default_rng(3)
    batches = [rng.random((rows, 4), np.float32) for rows in (1, 8, 9, 32, 3, 16)]
    found = run_side_by_side(engine, rig.device, batches, num_contexts=4)
    for x, y in zip(batches, found, strict=True):
        np.testing.assert_array_equal(y, 2 * x)
    engine.close()
    assert rig.device.leaks() == []


def test_captured_batches_are_each_right(rig: Rig) -> None:
    """A replay uses what lies at the captured addresses now."""
    rig.install()
    engine = rig.open(double_plan())
    batches = [np.full((4, 4), value, np.float32) for value in (1, 2, 3)]
    for x, y in zip(batches, run_captured(engine, rig.device, batches), strict=True):
        np.testing.assert_array_equal(y, 2 * x)
    engine.close()
    assert rig.device.leaks() == []
