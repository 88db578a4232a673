"""A plan served on the virtual device by the fake TensorRT."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.fake_tensorrt import World
from helpers.trt_rig import GpuSim
from helpers.trt_served import TrtServed


class SimServed(TrtServed):
    """On the virtual device."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sim = GpuSim()
        super().__init__(folder, monkeypatch, self.sim, World(self.sim))

    def advance(self) -> None:
        """Let one thing happen."""
        self.sim.step()
