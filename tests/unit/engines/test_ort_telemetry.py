"""A server that loads ONNX Runtime reports to nobody."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from helpers.tree import REPOSITORY

MODEL = REPOSITORY / "deploy" / "models" / "digits" / "1" / "model.onnx"
COUNT_THREADS = """
import os, sys
import {module}
import onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
session = onnxruntime.InferenceSession(sys.argv[1], options)
print(len(os.listdir("/proc/self/task")))
"""


def num_threads(module: str) -> int:
    """Count the threads of a process that imports a module and then opens a one-thread session."""
    env = {name: text for name, text in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    # numpy's own threads would be counted too
    env |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", COUNT_THREADS.format(module=module), str(MODEL)]
    done = subprocess.run(command, env=env, check=True, capture_output=True, text=True, timeout=20)
    return int(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="counts threads in /proc")
def test_no_thread_sends_usage_data() -> None:
    """Our import of ONNX Runtime switches its reporting off: no thread but the main one."""
    assert num_threads("headrace.engines.ort") == 1
