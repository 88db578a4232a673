"""Whether what a plan's contexts enqueue may be captured in CUDA graphs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from headrace.engines.base import CapturableEngine, MeasuredContext
from headrace.engines.trt import TrtOptions
from headrace.engines.trt_checked import Specialization
from helpers.fake_plans import double_plan, fill_plan
from helpers.trt_rig import Rig, RigSlot


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rig:
    return Rig(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("specialization", "is_capturable"), [("lazy", False), ("eager", True), ("none", True)]
)
def test_kernels_that_are_swapped_in_later_forbid_graphs(
    rig: Rig, specialization: Specialization, is_capturable: bool
) -> None:
    """RTX's lazy specialization would leave a graph with the first, slower kernels."""
    rig.install("tensorrt_rtx", "1.7.1.116")
    options = TrtOptions(specialization=specialization)
    engine = rig.open(double_plan(), kind="vtrt", options=options)
    assert isinstance(engine, CapturableEngine)
    assert engine.is_capturable is is_capturable
    engine.close()


def test_standard_plans_can_be_captured(rig: Rig) -> None:
    """They have all their kernels from the start."""
    rig.install()
    engine = rig.open(double_plan())
    assert engine.is_capturable
    engine.close()


def test_bindings_with_shape_tensors_say_that_they_cannot(rig: Rig) -> None:
    """Their values are read on the host, at each enqueue."""
    rig.install()
    engine = rig.open(fill_plan(), options=TrtOptions(takes_shape_tensors=True))
    slot = RigSlot(rig, engine)
    inputs: list[NDArray[Any]] = [np.ones(3, np.float32), np.array([2, 3], np.int64)]
    assert slot.lane(inputs, [(2, 3)]).binding.reads_host
    assert isinstance(slot.context, MeasuredContext)
    slot.close()
    engine.close()
