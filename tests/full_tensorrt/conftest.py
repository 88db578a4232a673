"""Fixtures of the trial: what it needs and does not find is a failure, never a skip."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.device.base import Device
from helpers.full_trial import PROFILES, SECOND_PROFILE, absent, build, write_layers


def _give_up(reason: str) -> None:
    pytest.exit(
        f"{reason}. This proves headrace with a full TensorRT on a GPU, so nothing is skipped: "
        "it needs both",
        returncode=1,
    )


@pytest.fixture(scope="session", autouse=True)
def device() -> Iterator[Device]:
    """GPU 0, opened before TensorRT is imported."""
    if missing := absent():
        _give_up(f"cannot be imported: {', '.join(missing)}")
    from headrace.device.cudart import CudartDevice, count_devices

    num_devices, why_none = count_devices()
    if not num_devices:
        _give_up(str(why_none))
    opened = CudartDevice.open(0)
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ONNX model that all plans are built from."""
    return write_layers(tmp_path_factory.mktemp("trial") / "layers.onnx")


@pytest.fixture(scope="session")
def plan(model: Path, device: Device) -> Path:
    """Two profiles, 1 to 16 rows and 16 to 32, without TF32: comparable with a CPU."""
    output = model.with_suffix(".plan")
    ran = build(model, output, *PROFILES, *SECOND_PROFILE, "--no-tf32")
    assert ran.code == 0, ran.stderr
    return output
