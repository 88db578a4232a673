"""The devices that need no GPU keep the contract; tests/gpu holds a GPU to the same one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from helpers.device_contract import AsyncContract, DeviceContract, ProgressContract
from helpers.device_rig import HostRig, InlineRig, Rig, SimRig
from helpers.graph_contract import GraphContract


class TestHost(AsyncContract, ProgressContract):
    """Worker threads."""

    @pytest.fixture
    def rig(self) -> Iterator[Rig]:
        with HostRig() as rig:
            yield rig


class TestHostInline(DeviceContract):
    """Streams that run everything at once on the caller's thread."""

    @pytest.fixture
    def rig(self) -> Iterator[Rig]:
        with InlineRig() as rig:
            yield rig


class TestSim(AsyncContract, ProgressContract, GraphContract):
    """The virtual device, as a stand-in for a GPU."""

    @pytest.fixture
    def rig(self) -> Iterator[Rig]:
        with SimRig() as rig:
            yield rig


class TestSimUnified(AsyncContract, ProgressContract, GraphContract):
    """The virtual device, as a stand-in for the host."""

    @pytest.fixture
    def rig(self) -> Iterator[Rig]:
        with SimRig(is_unified=True) as rig:
            yield rig
