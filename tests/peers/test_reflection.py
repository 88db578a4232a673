"""A client that knows nothing of us but the address."""

from __future__ import annotations

import pytest

from helpers.environments import ClientRun, python_environment

# The protocol's list; those that are not offered yet are declared all the same.
METHODS = [
    "CudaSharedMemoryRegister",
    "CudaSharedMemoryStatus",
    "CudaSharedMemoryUnregister",
    "LogSettings",
    "ModelConfig",
    "ModelInfer",
    "ModelMetadata",
    "ModelReady",
    "ModelStatistics",
    "ModelStreamInfer",
    "RepositoryIndex",
    "RepositoryModelLoad",
    "RepositoryModelUnload",
    "ServerLive",
    "ServerMetadata",
    "ServerReady",
    "SystemSharedMemoryRegister",
    "SystemSharedMemoryStatus",
    "SystemSharedMemoryUnregister",
    "TraceSetting",
]


@pytest.mark.timeout(120)
def test_reflection_is_enough_to_call(client: ClientRun) -> None:
    """Services and methods are listed, and messages made from the answers work."""
    interpreter = python_environment("reflection", "grpcio-reflection==1.81.1")
    seen = client(interpreter, "reflection.py")
    assert {"grpc.health.v1.Health", "inference.GRPCInferenceService"} <= set(seen["services"])
    assert any(name.startswith("grpc.reflection.") for name in seen["services"])
    assert seen["methods"] == METHODS
    assert seen["config_fields"] > 20
    assert set(seen["health"]) >= {"Check", "Watch"}
    assert seen["inputs"] == ["a", "b"]
