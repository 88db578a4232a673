"""An ensemble of ONNX models on a GPU: what comes back is numpy's sum."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def _needs_what_makes_its_models(needs_cuda_provider: None) -> None:
    pytest.importorskip("onnx", reason="onnx, which makes the models, is not installed")


def test_tensors_go_from_step_to_step(tmp_path: Path) -> None:
    """Sixty requests at once through three models; nothing is left in the end."""
    from headrace.device.cudart import CudartDevice
    from helpers.ensemble_served import chain_answers

    device = CudartDevice.open(0)
    try:
        for x, answer in chain_answers(tmp_path, device, 60):
            assert np.array_equal(answer, x + 111)
    finally:
        left_open = device.ledger.names()[1:]  # the first is the stream of check()
        device.close()
    assert left_open == []
