"""The trial of a served plan is itself right: tried with an ONNX model on the CPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from helpers.onnx_models import adds
from helpers.serve_trial import answers, expected


def test_answers_are_those_of_onnx_runtime(tmp_path: Path) -> None:
    """Each of many requests at a time gets its own answer, from a launcher made for the trial."""
    path = tmp_path / "plus.onnx"
    path.write_bytes(adds(0.5).SerializeToString())
    rng = np.random.default_rng(2)
    batches = [rng.random((rows, 4), np.float32) for rows in (1, 3, 8, 2, 5, 1, 4, 4)]
    found = answers(path, batches, folder=tmp_path, num_clients=4)
    for x, y in zip(batches, found, strict=True):
        np.testing.assert_array_equal(y, x + np.float32(0.5))
        np.testing.assert_array_equal(y, expected(path, x))
