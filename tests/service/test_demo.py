"""The demo as a newcomer runs it, and how it ends when something is wrong."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

DEPLOY = Path(__file__).parents[2] / "deploy"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the demo in a process of its own."""
    command = [sys.executable, str(DEPLOY / "demo" / "run.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)


@pytest.mark.timeout(100)
def test_the_demo_runs() -> None:
    """It exits with 0 after sixteen correct rows and the accuracy of the held-out images."""
    done = run()
    assert done.returncode == 0, done.stderr
    rows = [line for line in done.stdout.splitlines() if "%)" in line]
    assert len(rows) == 16
    assert all("  yes  " in row for row in rows)
    assert "held-out images right, accuracy 0.98" in done.stdout


@pytest.mark.timeout(100)
def test_a_bad_model_fails_the_demo(tmp_path: Path) -> None:
    """A model that guesses is found out: exit code 1, and the accuracy as the reason."""
    model = onnx.load(DEPLOY / "models" / "digits" / "1" / "model.onnx")
    for tensor in model.graph.initializer:
        if tensor.name == "output_weight":
            zeros = np.zeros_like(numpy_helper.to_array(tensor))
            tensor.CopyFrom(numpy_helper.from_array(zeros, tensor.name))
    (tmp_path / "digits" / "1").mkdir(parents=True)
    onnx.save(model, tmp_path / "digits" / "1" / "model.onnx")
    config = (DEPLOY / "models" / "digits" / "config.pbtxt").read_text()
    (tmp_path / "digits" / "config.pbtxt").write_text(config)
    done = run("--models", str(tmp_path))
    assert done.returncode == 1
    assert "demo: accuracy is 0." in done.stderr


@pytest.mark.timeout(100)
def test_a_server_that_does_not_start_fails_the_demo(tmp_path: Path) -> None:
    """The server's own words are shown, with exit code 1."""
    (tmp_path / "digits" / "1").mkdir(parents=True)
    (tmp_path / "digits" / "1" / "model.onnx").write_bytes(b"not a model")
    done = run("--models", str(tmp_path))
    assert done.returncode == 1
    assert "demo: the server ended before it was ready" in done.stderr
    assert "digits" in done.stderr
