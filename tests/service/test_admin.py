"""Every RPC but ModelInfer: what it answers, or the text with which it is not offered."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import grpc
import numpy as np
import pytest
from google.protobuf import descriptor_pb2
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)
from tritonclient.grpc import model_config_pb2
from tritonclient.grpc import service_pb2 as pb

from headrace_proto.pool import POOL
from helpers.rpc_client import RpcClient, refused
from helpers.server import Server

Code = grpc.StatusCode
Health = health_pb2.HealthCheckResponse
# (model, version) as the repository has them; version_policy keeps only the newest by default.
READY = {
    *(("versions", number) for number in ("1", "2", "10")),
    *((name, "1") for name in ("picks", "places", "reshaped", "slow", "three", "turned")),
}
OFFERED = [
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
    "SystemSharedMemoryUnregister",
    "TraceSetting",
]
NOT_OFFERED = {
    "CudaSharedMemoryRegister": "Client shared memory is disabled",
    "CudaSharedMemoryStatus": "Client shared memory is disabled",
    "SystemSharedMemoryRegister": "Client shared memory is disabled",
    "SystemSharedMemoryStatus": "Client shared memory is disabled",
}


def failure(client: RpcClient, name: str, /, **fields: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as caught:
        client.ask(name, **fields)
    return refused(caught.value)


def test_all_twenty_are_here() -> None:
    """The two lists together are the service as tritonclient knows it."""
    (service,) = pb.DESCRIPTOR.services_by_name.values()
    assert sorted([*OFFERED, *NOT_OFFERED]) == sorted(method.name for method in service.methods)


@pytest.mark.parametrize("name", NOT_OFFERED)
def test_what_is_not_offered_says_what_to_do(client: RpcClient, name: str) -> None:
    """UNIMPLEMENTED, with a text of ours rather than gRPC's."""
    code, text = failure(client, name)
    assert (code, NOT_OFFERED[name] in text) == (Code.UNIMPLEMENTED, True), text


@pytest.mark.parametrize("name", ["RepositoryModelLoad", "RepositoryModelUnload"])
def test_models_stay_unless_the_operator_lets_clients_change_them(
    client: RpcClient, name: str
) -> None:
    """UNAVAILABLE as Triton says it, with what would allow it."""
    code, text = failure(client, name, model_name="slow")
    assert code == Code.UNAVAILABLE
    assert "explicit model load / unload is not allowed" in text
    assert client.ask("ModelReady", name="slow").ready


def test_server_live_and_ready(client: RpcClient, small: Server) -> None:
    """Both are, and so is the health of everything."""
    assert client.ask("ServerLive").live
    assert client.ask("ServerReady").ready
    for service in ("", "inference.GRPCInferenceService", "grpc.health.v1.Health", "slow"):
        assert client.check(service) == Health.SERVING


def test_health_of_what_is_not_there(client: RpcClient) -> None:
    """Check says NOT_FOUND, Watch says SERVICE_UNKNOWN and goes on, as the protocol wants."""
    with pytest.raises(grpc.RpcError) as caught:
        client.check("nothing")
    code, text = refused(caught.value)
    assert (code, "'nothing'" in text) == (Code.NOT_FOUND, True)
    watch = client.watch("nothing")
    assert next(watch).status == Health.SERVICE_UNKNOWN
    assert watch.is_active()
    watch.cancel()


def test_health_is_watched(client: RpcClient) -> None:
    """The first message comes at once."""
    for service in ("", "versions"):
        watch = client.watch(service)
        assert next(watch).status == Health.SERVING
        watch.cancel()


@pytest.mark.parametrize(
    ("name", "version", "ready"),
    [
        ("versions", "", True),
        ("versions", "2", True),
        ("versions", "3", False),
        ("nothing", "", False),
    ],
)
def test_model_ready(client: RpcClient, name: str, version: str, ready: bool) -> None:
    """What is unknown is not ready, which is no error."""
    assert client.ask("ModelReady", name=name, version=version).ready == ready


def test_server_metadata(client: RpcClient) -> None:
    """Its name and version, and only such extensions as work."""
    metadata = client.ask("ServerMetadata")
    assert (metadata.name, metadata.version) == ("headrace", version("headrace-server"))
    assert sorted(metadata.extensions) == [
        "binary_tensor_data",
        "classification",
        "logging",
        "model_configuration",
        "model_repository",
        "model_repository(unload_dependents)",
        "parameters",
        "sequence",
        "statistics",
        "trace",
    ]


def test_model_metadata(client: RpcClient) -> None:
    """Names, datatypes and shapes, a free dimension as -1; all versions that are up."""
    metadata = client.ask("ModelMetadata", name="three")
    assert (metadata.name, metadata.platform) == ("three", "onnxruntime_onnx")
    assert [(t.name, t.datatype, list(t.shape)) for t in metadata.inputs] == [
        ("a", "FP32", [-1, 2]),
        ("b", "INT64", [-1, 3]),
        ("c", "BYTES", [-1, 1]),
    ]
    assert [(t.name, t.datatype, list(t.shape)) for t in metadata.outputs] == [
        ("p", "FP32", [-1, 2]),
        ("q", "INT64", [-1, 3]),
        ("r", "BYTES", [-1, 1]),
    ]
    assert client.ask("ModelMetadata", name="versions").versions == ["1", "2", "10"]
    assert client.ask("ModelMetadata", name="versions", version="2").versions == ["2"]


def test_model_config(client: RpcClient) -> None:
    """The whole configuration, completed from the model; what was written stays."""
    config = client.ask("ModelConfig", name="versions").config
    assert (config.name, config.platform, config.backend) == (
        "versions",
        "onnxruntime_onnx",
        "onnxruntime",
    )
    assert config.max_batch_size == 4
    assert [(each.name, each.data_type, list(each.dims)) for each in config.input] == [
        ("x", model_config_pb2.TYPE_FP32, [4])
    ]
    assert config.version_policy.WhichOneof("policy_choice") == "all"
    reshaped = client.ask("ModelConfig", name="reshaped").config
    assert (list(reshaped.input[0].dims), reshaped.max_batch_size) == ([1], 8)
    assert reshaped.input[0].HasField("reshape")


@pytest.mark.parametrize("name", ["ModelMetadata", "ModelConfig", "ModelStatistics"])
def test_models_that_are_not_there(client: RpcClient, name: str) -> None:
    """Each says so alike."""
    assert failure(client, name, name="nothing") == (
        Code.NOT_FOUND,
        "Request for unknown model: 'nothing' is not found",
    )
    code, text = failure(client, name, name="versions", version="3")
    assert code is Code.NOT_FOUND
    assert "version 3 is not found; there is 1, 2, 10" in text
    code, text = failure(client, name, name="versions", version="new")
    assert (code, "'new'" in text) == (Code.INVALID_ARGUMENT, True)


def test_repository_index(client: RpcClient) -> None:
    """Every version with its state, in order."""
    for ready in (False, True):
        index = client.ask("RepositoryIndex", ready=ready).models
        listed = [(model.name, model.version) for model in index]
        assert set(listed) >= READY
        assert len(listed) == len(set(listed))
        assert [name for name, _ in listed] == sorted(name for name, _ in listed)
        assert [v for name, v in listed if name == "versions"] == ["1", "2", "10"]
        assert {(model.state, model.reason) for model in index} == {("READY", "")}
    code, text = failure(client, "RepositoryIndex", repository_name="r")
    assert (code, "repository_name" in text) == (Code.UNIMPLEMENTED, True)


def statistics(client: RpcClient, name: str, version: str) -> Any:
    (found,) = client.ask("ModelStatistics", name=name, version=version).model_stats
    assert (found.name, found.version) == (name, version)
    return found


def test_model_statistics(client: RpcClient) -> None:
    """Each request moves the counters of its own version, by its rows; the three computes agree."""
    before = statistics(client, "versions", "2")
    other = statistics(client, "versions", "1")
    for rows in (1, 3, 3):
        client.infer("versions", {"x": np.zeros((rows, 4), np.float32)}, version="2")
    after = statistics(client, "versions", "2")
    assert after.inference_count - before.inference_count == 7
    assert after.execution_count - before.execution_count == 3
    assert after.last_inference > before.last_inference
    stats = after.inference_stats
    counts = {
        part: getattr(stats, part).count - getattr(before.inference_stats, part).count
        for part in ("success", "queue", "compute_input", "compute_infer", "compute_output")
    }
    assert set(counts.values()) == {3}
    assert stats.fail == before.inference_stats.fail
    parts = stats.queue.ns + stats.compute_input.ns + stats.compute_infer.ns
    assert 0 < parts + stats.compute_output.ns <= stats.success.ns
    batches = {batch.batch_size: batch.compute_infer.count for batch in after.batch_stats}
    batches_before = {b.batch_size: b.compute_infer.count for b in before.batch_stats}
    assert batches[3] - batches_before.get(3, 0) == 2
    assert statistics(client, "versions", "1") == other


def test_model_statistics_without_a_version_or_a_name(client: RpcClient) -> None:
    """All versions of the model, or of all models: perf_analyzer asks so."""
    of_model = client.ask("ModelStatistics", name="versions").model_stats
    assert [each.version for each in of_model] == ["1", "2", "10"]
    everything = client.ask("ModelStatistics").model_stats
    assert {(each.name, each.version) for each in everything} >= READY


@pytest.mark.parametrize("kind", ["System", "Cuda"])
def test_unregistering_shared_memory_succeeds(client: RpcClient, kind: str) -> None:
    """Of all regions and of any: there are none, and clients do it before they start."""
    for name in ("", "mine"):
        client.ask(f"{kind}SharedMemoryUnregister", name=name)


def test_reflection(client: RpcClient) -> None:
    """The services are listed, and their files are those that the server was built from."""
    database = ProtoReflectionDescriptorDatabase(client.channel)
    services = set(database.get_services())
    assert {"inference.GRPCInferenceService", "grpc.health.v1.Health"} <= services
    for symbol in ("inference.GRPCInferenceService", "inference.ModelConfig"):
        ours = descriptor_pb2.FileDescriptorProto()
        POOL.FindFileContainingSymbol(symbol).CopyToProto(ours)
        assert database.FindFileContainingSymbol(symbol) == ours
    assert database.FindFileContainingSymbol("grpc.health.v1.Health").package == "grpc.health.v1"
