"""A plan served by a TensorRT that is none: the real loader, adapter, slots and scheduler."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from headrace.device.base import Device
from headrace.engines.trt_modules import MODULES
from headrace.loader import LoadOptions
from headrace.model import ServedModel
from helpers.core_served import CoreServed
from helpers.fake_plans import double_plan, plan_bytes
from helpers.fake_tensorrt import World, make_module

TENSORS = """
input { name: "x" data_type: TYPE_FP32 dims: 4 }
output { name: "y" data_type: TYPE_FP32 dims: 4 }
"""
ALONE = LoadOptions(auto_complete=False)  # nothing switches batching on; wants TENSORS written


class TrtServed(CoreServed):
    """Its plans run on a fake."""

    def __init__(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, device: Device, world: World
    ) -> None:
        super().__init__(folder, device)
        self.world = world
        for names in MODULES.values():
            for name in names:  # whatever this machine has
                monkeypatch.setitem(sys.modules, name, None)
        monkeypatch.setitem(sys.modules, "tensorrt", make_module(self.world))

    def load(
        self,
        plan: dict[str, Any] | None = None,
        config: str = "",
        *,
        num_slots: int = 2,
        options: LoadOptions | None = None,
    ) -> ServedModel:
        """Load a plan; it doubles floats of shape (n, 4) when none is given."""
        model = self.folder / "m"
        (model / "1").mkdir(parents=True)
        (model / "1" / "model.plan").write_bytes(plan_bytes(plan or double_plan()))
        text = f'platform: "tensorrt_plan" instance_group {{ count: {num_slots} kind: KIND_GPU }}'
        (model / "config.pbtxt").write_text(f"{text} {config}")
        return self.serve(options)
