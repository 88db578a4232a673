"""The committed digits model: what its script makes, small, and right about images it never saw."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from google.protobuf import text_format
from sklearn.datasets import load_digits

from headrace.engines.repository import find_models
from headrace_proto.v1 import model_config_pb2 as config_pb

DEPLOY = Path(__file__).parents[3] / "deploy"
MODELS = DEPLOY / "models"
MODEL = MODELS / "digits" / "1" / "model.onnx"


def test_held_out_accuracy() -> None:
    """The model is right about at least 97 % of the images that training never saw."""
    digits = load_digits()
    session = onnxruntime.InferenceSession(MODEL)
    probabilities, labels = session.run(None, {"input": digits.data[3::4].astype(np.float32)})
    assert np.mean(labels[:, 0] == digits.target[3::4]) >= 0.97
    assert np.array_equal(probabilities.argmax(axis=1), labels[:, 0])
    assert np.allclose(probabilities.sum(axis=1), 1, atol=1e-6)


@pytest.mark.timeout(90)
def test_script_reproduces_the_committed_weights(tmp_path: Path) -> None:
    """Running the training script again gives the same graph and equal weights."""
    path = tmp_path / "model.onnx"
    script = [sys.executable, str(DEPLOY / "train_digits.py"), str(path)]
    # Its matrices are small: more threads only wait for each other, six times as long.
    env = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    subprocess.run(script, check=True, capture_output=True, timeout=60, env=env)
    made, committed = onnx.load(path).graph, onnx.load(MODEL).graph
    for new, old in zip(made.initializer, committed.initializer, strict=True):
        assert new.name == old.name
        assert np.array_equal(onnx.numpy_helper.to_array(new), onnx.numpy_helper.to_array(old))
    assert made.node == committed.node
    assert (made.input, made.output) == (committed.input, committed.output)


def test_model_is_small_enough_to_commit() -> None:
    """The file stays below 200 kB."""
    assert MODEL.stat().st_size < 200_000


def test_config_describes_the_model() -> None:
    """config.pbtxt names the inputs and outputs that the graph has, in its order."""
    config = config_pb.ModelConfig()
    text_format.Parse((MODELS / "digits" / "config.pbtxt").read_text(), config)
    graph = onnx.load(MODEL).graph
    assert config.name == "digits"
    assert [tensor.name for tensor in config.input] == [tensor.name for tensor in graph.input]
    assert [tensor.name for tensor in config.output] == [tensor.name for tensor in graph.output]


def test_repository_holds_models_alone() -> None:
    """A start on the demo repository notes nothing that it ignores."""
    found = find_models([MODELS])
    assert (found.faults, found.notes) == ([], [])
    assert [source.name for source in found.models] == ["digits"]
