"""grpc.health.v1: a service name for each model beside "", answered from the catalog when asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
from grpc_health.v1 import health_pb2

from headrace.errors import NotFoundError, RequestError, UnavailableError
from headrace.link.base import Catalog
from headrace_proto.service import SERVICE as INFERENCE_SERVICE

SERVICE = "grpc.health.v1.Health"
WATCH_EVERY_S = 0.1  # how late a watcher may learn of a change; probes look every few seconds

Serving = health_pb2.HealthCheckResponse.ServingStatus
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
SERVICE_UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


class HealthService:
    """Check and Watch."""

    def __init__(
        self, catalog: Catalog, *, is_welcome: Callable[[], bool], is_stopping: Callable[[], bool]
    ) -> None:
        """Answer from the catalog.

        Args:
            catalog: All models.
            is_welcome: New traffic is; when not, nothing is SERVING, though it may be served still.
            is_stopping: Watchers are let go of: an open stream would hold the server up.
        """
        self._catalog = catalog
        self._is_welcome = is_welcome
        self._is_stopping = is_stopping

    def status(self, service: str) -> int:
        """Return the serving status of "", the inference service, or a model."""
        if service in ("", INFERENCE_SERVICE, SERVICE):
            is_up = self._catalog.is_ready
        else:
            try:
                is_up = self._catalog.find(service, "").is_ready
            except NotFoundError:
                return SERVICE_UNKNOWN
            except (RequestError, UnavailableError):
                is_up = False
        return SERVING if is_up and self._is_welcome() else NOT_SERVING

    def handler(self) -> grpc.GenericRpcHandler:
        """Return the handlers for a grpc.aio server."""
        messages: dict[str, Any] = {
            "request_deserializer": health_pb2.HealthCheckRequest.FromString,
            "response_serializer": health_pb2.HealthCheckResponse.SerializeToString,
        }
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "Check": grpc.unary_unary_rpc_method_handler(self._check, **messages),
                "Watch": grpc.unary_stream_rpc_method_handler(self._watch, **messages),
            },
        )

    async def _check(self, request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        status = self.status(request.service)
        if status == SERVICE_UNKNOWN:
            await context.abort(
                grpc.StatusCode.NOT_FOUND, f"no model or service is named '{request.service[:64]}'"
            )
        return health_pb2.HealthCheckResponse(status=status)

    async def _watch(
        self,
        request: Any,
        context: grpc.aio.ServicerContext[Any, Any],  # noqa: ARG002 -- gRPC's signature
    ) -> AsyncIterator[Any]:
        last: int | None = None
        while True:
            is_last = self._is_stopping()  # before the status, so that the last one tells of it
            status = self.status(request.service)
            if status != last:
                yield health_pb2.HealthCheckResponse(status=status)
                last = status
            if is_last:
                return
            await asyncio.sleep(WATCH_EVERY_S)
