"""Every RPC of the client as a value: what to send, how to read the reply, which errors answer.

`Client` and `AsyncClient` only carry these; nothing here does I/O.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message
from google.protobuf.wrappers_pb2 import Int32Value, StringValue

from headrace_client.errors import InvalidReply
from headrace_client.message import InferResult, Outputs, Parameters, decode_reply, encode_request
from headrace_client.tensor import TensorLike
from headrace_proto.service import METHODS
from headrace_proto.v1 import inference_pb2 as pb
from headrace_proto.v1 import model_config_pb2 as config_pb

T = TypeVar("T")
M = TypeVar("M", bound=Message)

HEALTH_PATH = "/grpc.health.v1.Health/Check"


class HealthStatus(enum.Enum):
    """The answers of the standard health service, grpc.health.v1."""

    UNKNOWN = 0
    SERVING = 1
    NOT_SERVING = 2
    SERVICE_UNKNOWN = 3


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One RPC.

    Attributes:
        path: As on the wire.
        request: Serialized.
        decode: Reads the serialized reply.
        answers: Statuses that are answers rather than failures, and what they mean.
        is_inference: Whether a failure is an `InferenceFailed`.
    """

    path: str
    request: bytes
    decode: Callable[[bytes], T]
    answers: Mapping[grpc.StatusCode, T] = field(default_factory=dict)
    is_inference: bool = False


def _reader(message: type[M], read: Callable[[M], T]) -> Callable[[bytes], T]:
    def decode(reply: bytes) -> T:
        try:
            return read(message.FromString(reply))
        except DecodeError as error:
            name = message.DESCRIPTOR.name
            raise InvalidReply(f"the reply is not a {name}: {error}") from error

    return decode


def _call(
    name: str,
    request: Message,
    reply: type[M],
    read: Callable[[M], T],
    answers: Mapping[grpc.StatusCode, T] | None = None,
) -> Call[T]:
    path = METHODS[name].path
    return Call(path, request.SerializeToString(), _reader(reply, read), answers or {})


def infer(
    model_name: str,
    inputs: Mapping[str, TensorLike],
    *,
    outputs: Outputs | None,
    version: str,
    request_id: str,
    parameters: Parameters | None,
) -> Call[InferResult]:
    """ModelInfer."""
    request = encode_request(
        model_name,
        inputs,
        outputs=outputs,
        version=version,
        request_id=request_id,
        parameters=parameters,
    )
    return Call(METHODS["ModelInfer"].path, request, decode_reply, is_inference=True)


_NO = {grpc.StatusCode.UNAVAILABLE: False, grpc.StatusCode.DEADLINE_EXCEEDED: False}


def server_live() -> Call[bool]:
    """ServerLive; no server is a "no"."""
    return _call(
        "ServerLive", pb.ServerLiveRequest(), pb.ServerLiveResponse, lambda reply: reply.live, _NO
    )


def server_ready() -> Call[bool]:
    """ServerReady; no server is a "no"."""
    return _call(
        "ServerReady",
        pb.ServerReadyRequest(),
        pb.ServerReadyResponse,
        lambda reply: reply.ready,
        _NO,
    )


def model_ready(name: str, version: str) -> Call[bool]:
    """ModelReady; no server and no such model are a "no"."""
    return _call(
        "ModelReady",
        pb.ModelReadyRequest(name=name, version=version),
        pb.ModelReadyResponse,
        lambda reply: reply.ready,
        {**_NO, grpc.StatusCode.NOT_FOUND: False},
    )


def _health_status(reply: Int32Value) -> HealthStatus:
    known = {status.value for status in HealthStatus}
    return HealthStatus(reply.value) if reply.value in known else HealthStatus.UNKNOWN


def health(service: str) -> Call[HealthStatus]:
    """Check of grpc.health.v1.

    Its messages are a string and an enum, each in field 1: on the wire the same as protobuf's own
    wrappers, so that no further definition (nor distribution) is needed.
    """
    return Call(
        HEALTH_PATH,
        StringValue(value=service).SerializeToString(),
        _reader(Int32Value, _health_status),
        {grpc.StatusCode.NOT_FOUND: HealthStatus.SERVICE_UNKNOWN},
    )


def server_metadata() -> Call[pb.ServerMetadataResponse]:
    """ServerMetadata."""
    return _call(
        "ServerMetadata",
        pb.ServerMetadataRequest(),
        pb.ServerMetadataResponse,
        lambda reply: reply,
    )


def model_metadata(name: str, version: str) -> Call[pb.ModelMetadataResponse]:
    """ModelMetadata."""
    return _call(
        "ModelMetadata",
        pb.ModelMetadataRequest(name=name, version=version),
        pb.ModelMetadataResponse,
        lambda reply: reply,
    )


def model_config(name: str, version: str) -> Call[config_pb.ModelConfig]:
    """ModelConfig."""
    return _call(
        "ModelConfig",
        pb.ModelConfigRequest(name=name, version=version),
        pb.ModelConfigResponse,
        lambda reply: reply.config,
    )


def statistics(name: str, version: str) -> Call[Sequence[pb.ModelStatistics]]:
    """ModelStatistics."""
    return _call(
        "ModelStatistics",
        pb.ModelStatisticsRequest(name=name, version=version),
        pb.ModelStatisticsResponse,
        lambda reply: reply.model_stats,
    )


def repository_index(*, ready_only: bool) -> Call[Sequence[pb.RepositoryIndexResponse.ModelIndex]]:
    """RepositoryIndex."""
    return _call(
        "RepositoryIndex",
        pb.RepositoryIndexRequest(ready=ready_only),
        pb.RepositoryIndexResponse,
        lambda reply: reply.models,
    )


def load_model(
    name: str, config: Mapping[str, object] | str | None, files: Mapping[str, bytes] | None
) -> Call[None]:
    """RepositoryModelLoad."""
    request = pb.RepositoryModelLoadRequest(model_name=name)
    if config is not None:
        text = config if isinstance(config, str) else json.dumps(config)
        request.parameters["config"].string_param = text
    for path, content in (files or {}).items():
        request.parameters[f"file:{path}"].bytes_param = content
    return _call("RepositoryModelLoad", request, pb.RepositoryModelLoadResponse, lambda _: None)


def unload_model(name: str) -> Call[None]:
    """RepositoryModelUnload."""
    request = pb.RepositoryModelUnloadRequest(model_name=name)
    return _call("RepositoryModelUnload", request, pb.RepositoryModelUnloadResponse, lambda _: None)
