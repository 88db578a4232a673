"""An ONNX model that keeps state, on a GPU: what comes back are numpy's sums."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def _needs_what_makes_its_models(needs_cuda_provider: None) -> None:
    pytest.importorskip("onnx", reason="onnx, which makes the model, is not installed")


def test_states_go_over_the_bus_and_back(tmp_path: Path) -> None:
    """Eight sequences at once on two slots, in batches and graphs; nothing is left in the end."""
    from headrace.device.cudart import CudartDevice
    from helpers import onnx_models
    from helpers.core_served import CoreServed
    from helpers.parts import submit_part

    onnx_models.save(onnx_models.carries(), tmp_path / "m/1/model.onnx")
    slots = "max_batch_size: 4 instance_group { count: 2 }"
    (tmp_path / "m/config.pbtxt").write_text(f"{slots} {onnx_models.CARRIES_CONFIG}")
    device = CudartDevice.open(0)
    rig = CoreServed(tmp_path, device)
    try:
        rig.serve()
        random = np.random.default_rng(1)
        rows = random.integers(-9, 9, (20, 8, 1, 4)).astype(np.float32)
        asked = [
            [
                submit_part(
                    rig, rows[place, each], each + 1, is_start=not place, is_end=place == 19
                )
                for each in range(8)
            ]
            for place in range(20)
        ]
        rig.run()
        for place, sums in enumerate(np.cumsum(rows, axis=0)):
            for each in range(8):
                assert np.array_equal(asked[place][each].answer, sums[each])
    finally:
        rig.close()
        left_open = device.ledger.names()[1:]  # the first is the stream of check()
        device.close()
    assert left_open == []
