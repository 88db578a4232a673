"""Starts processes that have the real TensorRT-RTX, and, wherever they run, no GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.trt_wheels import WheelError, rtx_runtime


def rtx_environment() -> dict[str, str]:
    """Return the environment of a process that can import the RTX runtime; skip without a wheel."""
    try:
        folder = rtx_runtime()
    except WheelError as error:
        pytest.skip(f"no RTX runtime to compare with: {error}")
    search = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
    return os.environ | {"PYTHONPATH": search, "CUDA_VISIBLE_DEVICES": ""}


def run_python(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run Python with arguments in that environment."""
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        env=rtx_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
