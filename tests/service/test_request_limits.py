"""What the operator allows a request to have is what the server takes; each option has its text."""

from __future__ import annotations

import re
from pathlib import Path

import grpc
import numpy as np
import pytest
from onnx import helper

from helpers.onnx_models import FLOAT, STRING, model, port, save
from helpers.rpc_client import RpcClient, infer_message, refused
from helpers.server import Server, ServerPool

MOST_STRINGS, MOST_ELEMENTS, MOST_TENSORS = 3, 8, 2
LIMITS = {
    "--max-strings": MOST_STRINGS,
    "--max-elements": MOST_ELEMENTS,
    "--max-tensors": MOST_TENSORS,
}


@pytest.fixture(scope="module")
def limited(servers: ServerPool, tmp_path_factory: pytest.TempPathFactory) -> Server:
    """A server with low limits, each another number; its models give back what they are given."""
    folder: Path = tmp_path_factory.mktemp("limited")
    for name, kind, count in ("texts", STRING, 1), ("numbers", FLOAT, 1), ("three", FLOAT, 3):
        nodes = [helper.make_node("Identity", [f"x{i}"], [f"y{i}"]) for i in range(count)]
        inputs, outputs = ([port(f"{c}{i}", kind, [1, "n"]) for i in range(count)] for c in "xy")
        save(model(nodes, inputs, outputs), folder / name / "1/model.onnx")
    limits = [str(word) for pair in LIMITS.items() for word in pair]
    return servers.get("--model-repository", folder, "--transport", "grpcio", *limits)


@pytest.mark.parametrize(
    ("name", "count", "size", "text"),
    [
        ("texts", 1, MOST_STRINGS, ""),
        ("texts", 1, MOST_STRINGS + 1, "4 BYTES elements .* at most 3 a request: .*--max-strings"),
        ("numbers", 1, MOST_ELEMENTS, ""),
        ("numbers", 1, MOST_ELEMENTS + 1, "9 elements; .* at most 8 a tensor; .*--max-elements"),
        ("three", MOST_TENSORS + 1, 1, "names 3 inputs; this server takes 2"),
    ],
)
def test_limits_of_the_operator(
    limited: Server, name: str, count: int, size: int, text: str
) -> None:
    """What is within them is served, and one more is refused."""
    array = np.array([["a"] * size], object) if name == "texts" else np.ones((1, size), np.float32)
    inputs = {f"x{place}": array for place in range(count)}
    with RpcClient(limited.address) as client:
        if not text:
            assert client.infer(name, inputs)["y0"].size == size
            return
        with pytest.raises(grpc.RpcError) as caught:
            client.start(infer_message(name, inputs)).result()
    code, details = refused(caught.value)
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert re.search(text, details), details
