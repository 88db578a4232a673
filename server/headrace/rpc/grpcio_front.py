"""The front door over grpcio's asyncio server: complete and trusted; the default transport.

ModelInfer goes through a generic handler without (de)serializers, so that the message stays bytes.
grpcio holds replies that clients do not read, and their requests with them, without a bound: beyond
`max_unsent_bytes` new requests are refused until clients have read or left.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import isawaitable
from typing import Any

import grpc

from headrace.errors import ConfigError, HeadraceError, RequestError, UnsupportedError
from headrace.link.base import Link
from headrace.rpc.admin import NOT_OFFERED
from headrace.rpc.departures import hush_departures
from headrace.rpc.drive import LoopDriver
from headrace.rpc.gate import Gate
from headrace.rpc.health import HealthService
from headrace.rpc.infer import UNREAD, InferService
from headrace.rpc.inflate import HEADS, OPTION, PLAIN, Inflater
from headrace.rpc.parse import parse_counted
from headrace.rpc.reflection import reflection_handler
from headrace.rpc.status import Status, abort, status_of
from headrace.rpc.stream_service import StreamService
from headrace.rpc.wishes import Metadata
from headrace_proto.service import METHODS, SERVICE, Method

log = logging.getLogger(__name__)

Context = grpc.aio.ServicerContext[Any, Any]
SETTLE_S = 0.1  # 0.05 was enough for six uploads of 6 MB on a busy machine, 0.02 was not
COUNTED_REPLY_BYTES = 16_384
"""Smaller replies that nobody reads are bounded by the streams of a connection, 16 MiB by default;
to count them took a twenty-fifth of a small call."""
NO_DEADLINE_S = 1e9  # grpcio says "none" as about 9e18 seconds in places


@dataclass(frozen=True, slots=True)
class GrpcioOptions:
    """How the port is opened."""

    address: str  # "host:port" or "unix:path"
    channel_options: Sequence[tuple[str, Any]] = ()
    credentials: grpc.ServerCredentials | None = None
    max_unsent_bytes: int = 1 << 30


class _FutureCall:
    """A call whose handler awaits a future."""

    __slots__ = ("context", "future")

    def __init__(self, future: asyncio.Future[bytes | Status], context: Context) -> None:
        self.future = future
        self.context = context

    def metadata(self) -> Metadata:
        """Return the client's metadata: takes 2 us, as grpcio makes it anew."""
        return self.context.invocation_metadata() or ()

    def respond(self, reply: bytes) -> None:
        """Hand the reply to the handler, if it still waits."""
        if not self.future.done():
            self.future.set_result(reply)

    def fail(self, status: Status) -> None:
        """Hand the error to the handler, if it still waits."""
        if not self.future.done():
            self.future.set_result(status)


class GrpcioFront:
    """Serves every RPC on one port from the running event loop."""

    def __init__(
        self,
        options: GrpcioOptions,
        link: Link,
        driver: LoopDriver | None,
        *,
        infer: InferService,
        answers: Mapping[str, Callable[[Any], Any]],
        health: HealthService,
        streams: StreamService,
        inflater: Inflater,
        clock: Callable[[], float],
        gate: Gate | None = None,
    ) -> None:
        """Prepare; `driver` is None where another front serves ModelInfer, `gate` for everybody."""
        self._options = options
        self._infer = infer
        self._answers = answers
        self._health = health
        self._streams = streams
        self._inflater = inflater
        self._gate = gate
        self._link = link
        self._driver = driver
        self._clock = clock
        self._server: grpc.aio.Server | None = None
        self._unsent_bytes = 0  # of calls that are answered, but not yet written out
        self.port = 0

    async def start(self) -> None:
        """Open the port and serve.

        Raises:
            ConfigError: The address cannot be bound.
        """
        hush_departures()
        server = grpc.aio.server(options=[*self._options.channel_options, OPTION])
        handlers = (self._inference_handler(), self._health.handler(), reflection_handler())
        # Generic handlers only: one that is registered by its method goes before the gate.
        server.add_generic_rpc_handlers(handlers if self._gate is None else (self._gate, *handlers))
        address, credentials = self._options.address, self._options.credentials
        try:
            if credentials is None:
                self.port = server.add_insecure_port(address)
            else:
                self.port = server.add_secure_port(address, credentials)
        except RuntimeError as error:
            await server.stop(None)  # or its end would be reported as forgotten
            raise ConfigError(
                f"cannot listen on {address}: {error}; is another server on that port?",
                field="--grpc-port",
            ) from error
        await server.start()
        self._server = server

    async def stop(self, grace_s: float) -> None:
        """Refuse new calls, let those in flight finish within `grace_s`, then close."""
        server, self._server = self._server, None
        if server is not None:
            # Calls that are here but not yet taken would be cut with CANCELLED, which says nothing.
            await asyncio.sleep(min(SETTLE_S, grace_s))
            await self._streams.drain(grace_s)
            await server.stop(grace_s)

    def _inference_handler(self) -> grpc.GenericRpcHandler:
        handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {}
        for name, method in METHODS.items():
            if name == "ModelInfer" and self._driver is not None:
                handlers[name] = grpc.unary_unary_rpc_method_handler(self._model_infer)
            elif name == "ModelStreamInfer":
                handlers[name] = self._streams.handler
            elif name in self._answers:
                handlers[name] = self._unary(method, self._answers[name])
            elif name in NOT_OFFERED:
                handlers[name] = _not_offered(method)
        return grpc.method_handlers_generic_handler(SERVICE, handlers)

    async def _model_infer(self, message: bytes, context: Context) -> bytes:
        assert self._driver is not None
        received_at = self._clock()
        if message and message[0] != PLAIN and message[:2] in HEADS:
            try:
                message = await self._inflater.unpacked(message)
            except RequestError as error:
                await abort(context, status_of(error))
        left_s: float | None = context.time_remaining()
        has_deadline = left_s is not None and left_s < NO_DEADLINE_S
        future: asyncio.Future[bytes | Status] = asyncio.get_running_loop().create_future()
        call = _FutureCall(future, context)
        request = None
        if self._unsent_bytes >= self._options.max_unsent_bytes:
            self._infer.refuse(call, UNREAD)
        else:
            request = self._infer.accept(
                message,
                call,
                received_at=received_at,
                deadline=received_at + left_s if has_deadline and left_s is not None else None,
            )
        if request is not None:
            self._driver.step()
        try:
            answer = await future
        except asyncio.CancelledError:
            if request is not None:
                self._link.cancel(request)
            raise
        if isinstance(answer, Status):
            await abort(context, answer)
        if len(answer) >= COUNTED_REPLY_BYTES:
            self._count_until_sent(len(message) + len(answer), context)
        return answer

    def _count_until_sent(self, size_bytes: int, context: Context) -> None:
        def forget(_: Context) -> None:
            self._unsent_bytes -= size_bytes

        self._unsent_bytes += size_bytes
        context.add_done_callback(forget)  # type: ignore[arg-type]  # types-grpcio's is no Protocol

    def _unary(
        self, method: Method, answer: Callable[[Any], Any]
    ) -> grpc.RpcMethodHandler[Any, Any]:
        async def serve(message: bytes, context: Context) -> Any:
            try:
                unpacked = await self._inflater.unpacked(message)
                reply = answer(parse_counted(method.request, unpacked))
                return await reply if isawaitable(reply) else reply
            except Exception as error:
                if not isinstance(error, HeadraceError):
                    log.exception("%s failed because of a bug", method.name)
                await abort(context, status_of(error))

        return grpc.unary_unary_rpc_method_handler(
            serve, response_serializer=method.response.SerializeToString
        )


def _not_offered(method: Method) -> grpc.RpcMethodHandler[Any, Any]:
    status = status_of(UnsupportedError(NOT_OFFERED[method.name]))

    async def refuse(request: Any, context: Context) -> None:  # noqa: ARG001 -- gRPC's signature
        await abort(context, status)

    return grpc.unary_unary_rpc_method_handler(refuse)
