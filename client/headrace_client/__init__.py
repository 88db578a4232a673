"""Client of headrace, and of every other Open Inference Protocol server, sync and asyncio."""

from headrace_client.aio import AsyncClient
from headrace_client.calls import HealthStatus
from headrace_client.errors import (
    CallFailed,
    ClientClosed,
    DeadlineExceeded,
    HeadraceClientError,
    InferenceFailed,
    InvalidInput,
    InvalidReply,
    ServerUnavailable,
)
from headrace_client.message import InferResult
from headrace_client.settings import Tls
from headrace_client.sync import Client
from headrace_client.tensor import Tensor
from headrace_proto.tensors import bf16_to_float32

__all__ = [
    "AsyncClient",
    "CallFailed",
    "Client",
    "ClientClosed",
    "DeadlineExceeded",
    "HeadraceClientError",
    "HealthStatus",
    "InferResult",
    "InferenceFailed",
    "InvalidInput",
    "InvalidReply",
    "ServerUnavailable",
    "Tensor",
    "Tls",
    "bf16_to_float32",
]
