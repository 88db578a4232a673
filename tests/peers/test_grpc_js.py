"""grpc-js of Node.js with our .proto files."""

from __future__ import annotations

import pytest

from helpers.environments import ROOT, ClientRun, node_environment


@pytest.mark.timeout(300)
def test_grpc_js(client: ClientRun) -> None:
    """Ready, metadata, raw and typed tensors (64-bit integers whole), 32 calls at once, errors."""
    node, variables = node_environment()
    seen = client(node, "grpc_js.js", str(ROOT / "proto"), **variables)
    assert seen == {
        "ready": True,
        "metadata": ["a", "b"],
        "id": "js",
        "equal": True,
        "shape": ["1", "4"],
        "int64": ["-9007199254740993", "7"],
        "batch": 32,
        "error": 5,  # NOT_FOUND
    }
