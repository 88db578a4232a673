"""The client beside other clients of the protocol in one process, and alone with what it needs."""

from __future__ import annotations

import itertools
import subprocess
import sys

import pytest

# Imports in the given order, then lets each side write a request that the other one reads.
SIDE_BY_SIDE = """
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
from headrace_client.message import encode_request
from headrace_proto.v1 import inference_pb2
from tritonclient.grpc import service_pb2
theirs = service_pb2.ModelInferRequest.FromString(encode_request("m", {"x": [1.0]}))
assert theirs.model_name == "m" and len(theirs.raw_input_contents[0]) == 8
ours = inference_pb2.ModelInferRequest.FromString(theirs.SerializeToString())
assert ours.inputs[0].datatype == "FP64"
"""

FOREIGN = """
import sys
before = set(sys.modules)
import headrace_client, headrace_client.cli
loaded = {name.partition(".")[0] for name in set(sys.modules) - before}
print(*sorted(loaded - sys.stdlib_module_names))
"""


def run(code: str, *arguments: str) -> str:
    """Run a fresh interpreter, and return what it printed."""
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "order",
    list(itertools.permutations(["headrace_client", "tritonclient.grpc", "tritonclient.grpc.aio"])),
    ids=" ".join,
)
def test_beside_tritonclient(order: tuple[str, ...]) -> None:
    """In any order both import, and read each other's messages."""
    run(SIDE_BY_SIDE, *order)


def test_alone() -> None:
    """Importing the client loads grpcio, protobuf, numpy and our messages, and nothing else."""
    needed = {"grpc", "google", "numpy", "headrace_proto", "headrace_client"}
    # What `import grpc` itself brings along, where it is installed.
    by_grpc = {"typing_extensions", "grpc_health", "grpc_reflection", "cython_runtime"}
    loaded = {name for name in run(FOREIGN).split() if not name.startswith("_cython")}
    assert needed <= loaded <= needed | by_grpc
