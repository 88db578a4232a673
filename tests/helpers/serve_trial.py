"""Serves a model file in a process of its own, and compares its answers with ONNX Runtime's."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from headrace_client import Client
from helpers.server import NO_DEBUG, launcher, serving

Array = NDArray[Any]


def expected(onnx_path: Path, x: Array) -> Array:
    """Return what ONNX Runtime on the CPU makes of input `x`."""
    session = onnxruntime.InferenceSession(str(onnx_path), providers=["CPUExecutionProvider"])
    answer: Array = session.run(None, {"x": x})[0]
    return answer


def answers(
    model: Path, batches: Sequence[Array], *arguments: str, folder: Path, num_clients: int = 8
) -> list[Array]:
    """Serve a model whose file is named for it, and send all batches from several threads.

    Args:
        model: The file.
        batches: Each is the input `x` of one request.
        arguments: Flags of `headrace serve`.
        folder: For the launcher.
        num_clients: Requests under way at a time.
    """
    search = os.pathsep.join(filter(None, sys.path))
    env = {**NO_DEBUG, "PYTHONPATH": search}
    with (
        serving(model, *arguments, env=env, headrace=launcher(folder)) as server,
        Client(server.address) as client,
        ThreadPoolExecutor(num_clients) as threads,
    ):

        def ask(x: Array) -> Array:
            (answer,) = client.infer(model.stem, {"x": x}).values()
            return np.asarray(answer)

        return list(threads.map(ask, batches))
