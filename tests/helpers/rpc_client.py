"""A plain gRPC client on tritonclient's messages, for tests that look at statuses and trailers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import grpc
import numpy as np
import numpy.typing as npt
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tritonclient.grpc import service_pb2 as pb
from tritonclient.utils import np_to_triton_dtype

from helpers.messages import infer, tensor
from helpers.ort_rig import array_of, raw_of

Array = npt.NDArray[Any]
SERVICE = "/inference.GRPCInferenceService/"
CALL_S = 20.0
_ANY_SIZE = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


def infer_message(model: str, inputs: Mapping[str, Array], **more: Any) -> bytes:
    """A ModelInferRequest with raw tensors; `more` as in `helpers.messages.infer`."""
    tensors = [
        tensor(name, np_to_triton_dtype(array.dtype), array.shape) for name, array in inputs.items()
    ]
    return infer(model, tensors, [raw_of(array) for array in inputs.values()], **more)


def slow_message(rounds: int, x: Sequence[float] = (1.0,), **more: Any) -> bytes:
    """A request to the slow model."""
    inputs: dict[str, Array] = {
        "x": np.array(x, np.float32),
        "rounds": np.array([rounds], np.int64),
    }
    return infer_message("slow", inputs, **more)


def arrays(response: Any) -> dict[str, Array]:
    """The outputs of a response by name, in its order."""
    return {
        output.name: array_of(raw, output.datatype, tuple(output.shape))
        for output, raw in zip(response.outputs, response.raw_output_contents, strict=True)
    }


class RpcClient:
    """One channel to one server."""

    def __init__(self, address: str, credentials: grpc.ChannelCredentials | None = None) -> None:
        if credentials is None:
            self.channel = grpc.insecure_channel(address, _ANY_SIZE)
        else:
            self.channel = grpc.secure_channel(address, credentials, _ANY_SIZE)
        self.health: Any = health_pb2_grpc.HealthStub(self.channel)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.channel.close()

    def start(self, message: bytes, *, timeout_s: float | None = CALL_S) -> Any:
        """A ModelInfer on its way: a gRPC future."""
        method = self.channel.unary_unary(
            f"{SERVICE}ModelInfer",
            request_serializer=bytes,
            response_deserializer=pb.ModelInferResponse.FromString,
        )
        return method.future(message, timeout=timeout_s)

    def infer(self, model: str, inputs: Mapping[str, Array], **more: Any) -> dict[str, Array]:
        """Infer and return the outputs."""
        return arrays(self.start(infer_message(model, inputs, **more)).result())

    def ask(self, name: str, /, **fields: Any) -> Any:
        """Call a unary RPC by its name; the fields are those of its request."""
        method: Any = self.channel.unary_unary(
            SERVICE + name,
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=getattr(pb, f"{name}Response").FromString,
        )
        return method(getattr(pb, f"{name}Request")(**fields), timeout=CALL_S)

    def check(self, service: str = "") -> int:
        """The health of a service."""
        request = health_pb2.HealthCheckRequest(service=service)
        status: int = self.health.Check(request, timeout=CALL_S).status
        return status

    def watch(self, service: str = "") -> Any:
        """The changes of a service's health: an iterator, and a gRPC call."""
        return self.health.Watch(health_pb2.HealthCheckRequest(service=service), timeout=60)


def told(call: Any) -> tuple[grpc.StatusCode, str]:
    """How a call ended; waits for it."""
    return call.code(), call.details() or ""


def refused(error: grpc.RpcError) -> tuple[grpc.StatusCode, str]:
    """The same of a raised error."""
    call: Any = error
    return call.code(), call.details() or ""
