"""A plan served on a GPU by TensorRT's stand-in.

Imports cuda-bindings: only to be imported where a GPU was found.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.device.cudart import CudartDevice
from helpers.standin_tensorrt import CudaWorld
from helpers.trt_served import TrtServed


class StandinRig(TrtServed):
    """GPU 0."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.device: CudartDevice = CudartDevice.open(0)
        self.world: CudaWorld = CudaWorld(self.device)
        super().__init__(folder, monkeypatch, self.device, self.world)

    def finish(self) -> list[str]:
        """Close everything; names of what stayed open on the device."""
        self.close()
        left_open = self.device.ledger.names()[1:]  # the first is the stream of check()
        self.world.close()
        self.device.close()
        return left_open
