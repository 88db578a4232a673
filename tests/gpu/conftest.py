"""Fixtures of the GPU tests: skipped, with the reason, where CUDA finds no GPU."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from helpers.device_rig import Rig

pytest.register_assert_rewrite("helpers.device_contract", "helpers.graph_contract")


@pytest.fixture
def rig() -> Iterator[Rig]:
    """GPU 0, with everything that the test opens on it closed afterwards."""
    pytest.importorskip("cuda.bindings.runtime", reason="cuda-bindings is not installed")
    from headrace.device.cudart import count_devices

    num_devices, why_none = count_devices()
    if not num_devices:
        pytest.skip(str(why_none))
    from helpers.cudart_rig import CudartRig

    with CudartRig() as rig:
        yield rig
