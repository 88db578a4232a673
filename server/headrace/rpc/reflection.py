"""Server reflection over two descriptor pools: our private one and protobuf's default."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
from google.protobuf import descriptor_pool
from grpc_reflection.v1alpha import reflection, reflection_pb2

from headrace.rpc import health
from headrace.rpc.inflate import small_unpacked
from headrace_proto.pool import POOL
from headrace_proto.service import SERVICE

SERVICES = (SERVICE, health.SERVICE, reflection.SERVICE_NAME)


class _BothPools:
    """Asks our pool first; the reflection servicer uses a pool by these names only."""

    def __init__(self) -> None:
        self._pools: tuple[Any, ...] = (POOL, descriptor_pool.Default())

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def find(*arguments: Any) -> Any:
            for pool in self._pools[:-1]:
                try:
                    return getattr(pool, name)(*arguments)
                except KeyError:
                    continue
            return getattr(self._pools[-1], name)(*arguments)

        return find


def reflection_handler() -> grpc.GenericRpcHandler:
    """Return the handler that lists the services and tells their descriptors."""
    servicer = reflection.aio.ReflectionServicer(SERVICES, pool=_BothPools())
    answer = grpc.stream_stream_rpc_method_handler(
        servicer.ServerReflectionInfo,
        request_deserializer=_read,
        response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    return grpc.method_handlers_generic_handler(
        reflection.SERVICE_NAME, {"ServerReflectionInfo": answer}
    )


def _read(message: bytes) -> Any:
    return reflection_pb2.ServerReflectionRequest.FromString(small_unpacked(message))
