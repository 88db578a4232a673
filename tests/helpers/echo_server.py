"""A small server of the protocol that answers with what it was sent; made of grpcio and protobuf.

It knows nothing of our codec: requests are parsed by protobuf, and their raw tensors are sent back
as they came, so that a test sees here what really travelled, and at the caller what came back.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import grpc
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2

from headrace_proto.service import METHODS, SERVICE
from headrace_proto.v1 import inference_pb2 as pb

Context = grpc.ServicerContext
HELD_S = 15.0  # a held call is let go after this, whatever happens


class Failure(NamedTuple):
    """How a method fails, the next `times` times that it is called."""

    code: grpc.StatusCode
    text: str
    trailing: tuple[tuple[str, str], ...] = ()
    times: int = 1


@dataclass
class EchoServer:
    """What the server saw, and what it is told to do next."""

    url: str = ""
    ready: bool = True
    requests: list[pb.ModelInferRequest] = field(default_factory=list)
    metadata: list[dict[str, str]] = field(default_factory=list)
    calls: Counter[str] = field(default_factory=Counter)
    failures: dict[str, Failure] = field(default_factory=dict)
    reply: Callable[[pb.ModelInferRequest], bytes] | None = None
    hold: bool = False  # ModelInfer waits until its caller leaves
    held: threading.Event = field(default_factory=threading.Event)  # one is waiting
    left: threading.Event = field(default_factory=threading.Event)  # its caller has left

    def answer(self, name: str, request: Any, context: Context) -> bytes:
        self.calls[name] += 1
        self.metadata.append({str(key): str(value) for key, value in context.invocation_metadata()})
        failure = self.failures.get(name)
        if failure is not None and failure.times > 0:
            self.failures[name] = failure._replace(times=failure.times - 1)
            context.set_trailing_metadata(failure.trailing)
            context.abort(failure.code, failure.text)
        answer: Callable[[Any, Context], Message | bytes] = getattr(self, name)
        message = answer(request, context)
        return message if isinstance(message, bytes) else message.SerializeToString()

    def ServerLive(self, request: pb.ServerLiveRequest, context: Context) -> Message:
        return pb.ServerLiveResponse(live=True)

    def ServerReady(self, request: pb.ServerReadyRequest, context: Context) -> Message:
        return pb.ServerReadyResponse(ready=self.ready)

    def ModelReady(self, request: pb.ModelReadyRequest, context: Context) -> Message:
        self._find(request.name, context)
        return pb.ModelReadyResponse(ready=self.ready)

    def ServerMetadata(self, request: pb.ServerMetadataRequest, context: Context) -> Message:
        return pb.ServerMetadataResponse(name="echo", version="1.2", extensions=["statistics"])

    def ModelMetadata(self, request: pb.ModelMetadataRequest, context: Context) -> Message:
        self._find(request.name, context)
        tensors = [
            pb.ModelMetadataResponse.TensorMetadata(name=name, datatype=datatype, shape=[-1, 2])
            for name, datatype in (("x", "FP32"), ("s", "BYTES"), ("b", "BF16"))
        ]
        return pb.ModelMetadataResponse(
            name="echo", versions=["1", "3"], platform="none", inputs=tensors, outputs=tensors
        )

    def ModelConfig(self, request: pb.ModelConfigRequest, context: Context) -> Message:
        self._find(request.name, context)
        response = pb.ModelConfigResponse()
        response.config.name, response.config.max_batch_size = "echo", 8
        return response

    def ModelStatistics(self, request: pb.ModelStatisticsRequest, context: Context) -> Message:
        return pb.ModelStatisticsResponse(
            model_stats=[pb.ModelStatistics(name="echo", version="3", inference_count=7)]
        )

    def RepositoryIndex(self, request: pb.RepositoryIndexRequest, context: Context) -> Message:
        response = pb.RepositoryIndexResponse()
        response.models.add(name="echo", version="3", state="READY")
        if not request.ready:
            response.models.add(name="torn", version="1", state="UNAVAILABLE", reason="no file")
        return response

    def Check(self, request: health_pb2.HealthCheckRequest, context: Context) -> Message:
        if request.service:
            self._find(request.service, context)
        states = health_pb2.HealthCheckResponse
        return states(status=states.SERVING if self.ready else states.NOT_SERVING)

    def ModelInfer(self, request: pb.ModelInferRequest, context: Context) -> Message | bytes:
        self.requests.append(request)
        if self.hold:
            context.add_callback(self.left.set)
            self.held.set()
            self.left.wait(HELD_S)
        if self.reply is not None:
            return self.reply(request)
        response = pb.ModelInferResponse(
            model_name=request.model_name, model_version=request.model_version or "3", id=request.id
        )
        for tensor in request.inputs:
            response.outputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
        response.raw_output_contents.extend(request.raw_input_contents)
        for name, value in request.parameters.items():
            response.parameters[name].CopyFrom(value)
        return response

    @staticmethod
    def _find(name: str, context: Context) -> None:
        if name != "echo":
            context.abort(grpc.StatusCode.NOT_FOUND, f"unknown model: '{name}'")


def _method(
    echo: EchoServer, name: str, request: type[Message]
) -> grpc.RpcMethodHandler[Any, bytes]:
    return grpc.unary_unary_rpc_method_handler(
        lambda message, context: echo.answer(name, message, context),
        request_deserializer=request.FromString,
    )


@contextmanager
def echo_server(
    address: str = "127.0.0.1:0", credentials: grpc.ServerCredentials | None = None
) -> Iterator[EchoServer]:
    """Serves until the block ends; `url` is where."""
    echo = EchoServer()
    names = [name for name, method in METHODS.items() if hasattr(EchoServer, name)]
    inference = {name: _method(echo, name, METHODS[name].request) for name in names}
    health = {"Check": _method(echo, "Check", health_pb2.HealthCheckRequest)}
    with ThreadPoolExecutor(8) as threads:
        options = [("grpc.max_receive_message_length", -1), ("grpc.so_reuseport", 0)]
        server = grpc.server(threads, options=options)
        server.add_generic_rpc_handlers(
            (
                grpc.method_handlers_generic_handler(SERVICE, inference),
                grpc.method_handlers_generic_handler("grpc.health.v1.Health", health),
            )
        )
        host = address.rpartition(":")[0]
        if credentials is None:
            port = server.add_insecure_port(address)
        else:
            port = server.add_secure_port(address, credentials)
        echo.url = f"{host}:{port}"
        server.start()
        try:
            yield echo
        finally:
            echo.left.set()
            server.stop(grace=None).wait()
