"""ModelStreamInfer over grpcio: reads requests, hands them to the core, writes replies in order.

Each stream is two tasks: its handler writes, a child reads. While the client does not read, writing
waits, the stream fills up (`rpc/stream.py`), and reading stops: gRPC's flow control tells the
client, and nobody else notices.

How a stream ends
- The client closes its half: what is in is answered, then OK.
- The client leaves or its deadline passes: grpcio cancels the handler, and every request of the
  stream that is not answered is cancelled.
- `drain`: no more is read, what is in is answered, then UNAVAILABLE: idle clients are told as well.
- An error where the client asked for statuses (`triton_grpc_error: true`): that status.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from threading import get_ident
from typing import Any

import grpc

from headrace.errors import HeadraceError, RequestError, UnavailableError
from headrace.link.base import StreamLink
from headrace.rpc.drive import LoopDriver
from headrace.rpc.infer import UNREAD, InferService
from headrace.rpc.inflate import HEADS, PLAIN, Inflater
from headrace.rpc.pins import Pins, wants_pin
from headrace.rpc.status import Status, abort, status_of
from headrace.rpc.stream import HeldBytes, OrderedReplies, StreamBounds
from headrace.scheduling.admission import SHUTTING_DOWN

log = logging.getLogger(__name__)

Context = grpc.aio.ServicerContext[Any, Any]
NO_DEADLINE_S = 1e9  # grpcio says "none" as about 9e18 seconds in places


class StreamService:
    """Serves the streams of one server; all of it on the event loop's thread."""

    def __init__(
        self,
        infer: InferService,
        link: StreamLink,
        driver: LoopDriver,
        bounds: StreamBounds,
        *,
        inflater: Inflater,
        clock: Callable[[], float],
        max_held_bytes: int,
    ) -> None:
        """Prepare.

        Args:
            infer: Where requests go.
            link: Where they are cancelled.
            driver: Steps the core after each.
            bounds: Of each stream.
            inflater: Unpacks compressed messages.
            clock: The server's.
            max_held_bytes: What all streams may hold together before new requests are refused.
        """
        self.infer = infer
        self.link = link
        self.driver = driver
        self.bounds = bounds
        self.inflater = inflater
        self.clock = clock
        self.held = HeldBytes()
        self._max_held_bytes = max_held_bytes
        self._streams: set[_Stream] = set()

    @property
    def num_open(self) -> int:
        """How many streams there are."""
        return len(self._streams)

    @property
    def is_full(self) -> bool:
        """Whether all streams together hold as much as they may."""
        return self.held.total >= self._max_held_bytes

    @property
    def handler(self) -> grpc.RpcMethodHandler[Any, Any]:
        """What grpcio calls: messages stay bytes both ways."""
        return grpc.stream_stream_rpc_method_handler(self._serve)

    async def drain(self, grace_s: float) -> None:
        """Read no more, write what is in, end every stream; at most `grace_s`."""
        streams = list(self._streams)
        for stream in streams:
            stream.end(status_of(UnavailableError(SHUTTING_DOWN)))
        if streams:
            await asyncio.wait([stream.ended for stream in streams], timeout=grace_s)

    async def _serve(self, _: Any, context: Context) -> None:
        try:
            stream = _Stream(self, context)
        except RequestError as error:  # what its metadata ask for
            await abort(context, status_of(error))
        self._streams.add(stream)
        try:
            status = await stream.serve()
        finally:
            self._streams.discard(stream)
        if status is not None:
            await abort(context, status)


class _Stream:
    """One open stream."""

    def __init__(self, service: StreamService, context: Context) -> None:
        self._service = service
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._thread = get_ident()
        metadata = context.invocation_metadata() or ()
        self._pins = Pins(service.link, is_wanted=wants_pin(metadata))
        self._replies = OrderedReplies(service.bounds, service.held, self._on_answer, metadata)
        self._last: Status | None = None  # how the stream ends when all is written; None for OK
        self._waiter: asyncio.Future[None] | None = None  # of the writer, for a reply
        self._room: asyncio.Future[None] | None = None  # of the reader, for a reply to be written
        self._is_woken = False
        self._reader = self._loop.create_task(self._read())
        self._reader.add_done_callback(self._wake)
        self.ended: asyncio.Future[None] = self._loop.create_future()

    async def serve(self) -> Status | None:
        """Serve to the end; return the status that it ends with, None for OK."""
        try:
            return await self._write()
        finally:
            self._reader.cancel()
            self._replies.clear(self._service.link.cancel)
            self._pins.close()
            self.ended.set_result(None)

    def end(self, status: Status) -> None:
        """Read no more; the status follows behind the replies to what is in."""
        self._last = status
        self._reader.cancel()

    async def _read(self) -> None:
        service, replies, read = self._service, self._replies, self._context.read
        accept, step, clock = service.infer.accept, service.driver.step, service.clock
        left_s: float | None = self._context.time_remaining()
        has_deadline = left_s is not None and left_s < NO_DEADLINE_S
        deadline = clock() + left_s if has_deadline and left_s is not None else None
        while (message := await read()) is not grpc.aio.EOF:
            fault: HeadraceError | None = None
            if message and message[0] != PLAIN and message[:2] in HEADS:
                try:
                    message = await service.inflater.unpacked(message)
                except RequestError as error:
                    fault = error
            call = replies.add()  # behind every wait: what is in gets its answer
            request = None
            if fault is not None or service.is_full:
                service.infer.refuse(call, fault or UNREAD)
            else:
                request = accept(
                    message, call, received_at=clock(), deadline=deadline, stream=self._pins
                )
            if request is None:
                replies.refused(call, message)
            else:
                replies.accepted(call, request)
                step()
            del message  # large, and the next may be long in coming
            while replies.is_full:
                self._room = self._loop.create_future()
                await self._room

    async def _write(self) -> Status | None:
        replies, write = self._replies, self._context.write
        while True:
            while (reply := replies.next_reply()) is not None:
                if type(reply) is Status:
                    return reply
                await write(reply)
                replies.sent()
                self._make_room()
            if self._reader.done() and not replies:
                return self._how_reading_ended()
            self._waiter = self._loop.create_future()
            await self._waiter

    def _how_reading_ended(self) -> Status | None:
        error = None if self._reader.cancelled() else self._reader.exception()
        if error is None:
            return self._last
        log.error("reading a stream failed because of a bug", exc_info=error)
        return status_of(error) if isinstance(error, Exception) else self._last

    def _make_room(self) -> None:
        room = self._room
        if room is not None and not self._replies.is_full:
            self._room = None
            if not room.done():
                room.set_result(None)

    def _on_answer(self) -> None:
        """Wake the writer; called on whichever thread is in the core."""
        if get_ident() == self._thread:
            self._wake()
        elif not self._is_woken:
            self._is_woken = True
            self._loop.call_soon_threadsafe(self._on_woken)

    def _on_woken(self) -> None:
        self._is_woken = False  # before the writer looks: what is answered meanwhile wakes it again
        self._wake()

    def _wake(self, _: object = None) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
