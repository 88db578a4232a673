"""grpc.health.v1: a service name for each model beside "", answered from the catalog when asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
from grpc_health.v1 import health_pb2

from headrace.errors import NotFoundError, RequestError, UnavailableError
from headrace.escape import cited
from headrace.link.base import Catalog
from headrace.rpc.inflate import small_unpacked
from headrace.rpc.parse import parse
from headrace_proto.service import SERVICE as INFERENCE_SERVICE

Context = grpc.aio.ServicerContext[Any, Any]
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
        written: Any = health_pb2.HealthCheckResponse.SerializeToString
        check, watch = self._check, self._watch
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "Check": grpc.unary_unary_rpc_method_handler(check, response_serializer=written),
                "Watch": grpc.unary_stream_rpc_method_handler(watch, response_serializer=written),
            },
        )

    async def _check(self, message: bytes, context: Context) -> Any:
        service = await _service(message, context)
        status = self.status(service)
        if status == SERVICE_UNKNOWN:
            await context.abort(
                grpc.StatusCode.NOT_FOUND, f"no model or service is named '{cited(service)}'"
            )
        return health_pb2.HealthCheckResponse(status=status)

    async def _watch(self, message: bytes, context: Context) -> AsyncIterator[Any]:
        service = await _service(message, context)
        last: int | None = None
        while True:
            is_last = self._is_stopping()  # before the status, so that the last one tells of it
            status = self.status(service)
            if status != last:
                yield health_pb2.HealthCheckResponse(status=status)
                last = status
            if is_last:
                return
            await asyncio.sleep(WATCH_EVERY_S)


async def _service(message: bytes, context: Context) -> str:
    """Return the name in a request; end the call when it is none."""
    try:
        return parse(health_pb2.HealthCheckRequest, small_unpacked(message)).service
    except RequestError as error:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
