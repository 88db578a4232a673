"""`make test-tensorrt` proves something or fails; it never passes for want of TensorRT or a GPU."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from helpers.full_trial import absent, write_layers
from helpers.serve_trial import expected
from helpers.tree import REPOSITORY


def test_without_tensorrt_the_trial_fails() -> None:
    """Exit status 1, and a text that says what is missing."""
    if not absent():
        pytest.skip("everything that the trial needs is here")
    options = ["-c", "tests/gpu/pytest.ini", "-p", "helpers.must_run", "tests/full_tensorrt"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options],
        cwd=REPOSITORY,
        env={
            **os.environ,
            "PYTHONPATH": "proto:server:client:tests",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        },
        check=False,
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"cannot be imported: {', '.join(absent())}" in done.stdout
    assert "nothing is skipped" in done.stdout


def test_the_model_of_the_trial_is_one(tmp_path: Path) -> None:
    """ONNX Runtime runs it, and its answers are neither all zero nor all alike."""
    y = expected(write_layers(tmp_path / "layers.onnx"), np.ones((3, 64), np.float32))
    assert y.shape == (3, 64)
    assert len(np.unique(y[0])) > 8


def test_the_page_names_each_test_of_the_trial() -> None:
    """What is not proven here has its test, and no test of the trial is left out."""
    page = (REPOSITORY / "docs" / "decisions.md").read_text("utf-8")
    section = page.partition("## What is not proven here")[2]
    trial = REPOSITORY / "tests" / "full_tensorrt" / "test_full_tensorrt.py"
    tests = set(re.findall(r"^def (test_\w+)", trial.read_text("utf-8"), re.MULTILINE))
    assert tests
    assert set(re.findall(r"`(test_\w+)`", section)) == tests
