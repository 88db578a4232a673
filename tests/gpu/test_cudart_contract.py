"""A GPU keeps the contract that host and sim keep."""

from __future__ import annotations

import pytest

from helpers.device_contract import AsyncContract
from helpers.device_rig import Rig
from helpers.graph_contract import GraphContract

pytestmark = pytest.mark.gpu


class TestCudart(AsyncContract, GraphContract):
    """GPU 0; the fixture is in conftest.py."""

    def test_progress_can_only_be_polled_for(self, rig: Rig) -> None:
        """No callback of CUDA ever runs Python, so nobody is told."""
        assert rig.device.on_progress is None
        assert (rig.device.kind, rig.device.is_unified) == ("cudart", False)
