"""ModelInfer: the bytes of a message in, a request for the link out, its reply back to the call.

The same code serves every transport: what a transport hands over is the message, the deadline and a
`Call` to answer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

import grpc

from headrace.errors import (
    DeviceError,
    HeadraceError,
    OverloadedError,
    RequestError,
    RetiredError,
    TooLargeError,
    UnavailableError,
)
from headrace.link.base import Catalog, Link, Served
from headrace.regions.table import RegionTable
from headrace.rpc.cached import CachedForm, Submit
from headrace.rpc.prepare import Limits, Preparer
from headrace.rpc.reply import ReplyWriter
from headrace.rpc.status import Status, status_of
from headrace.rpc.wishes import Metadata, source_of
from headrace.scheduling.line import Line
from headrace.scheduling.request import Request
from headrace.slots.batch import Output
from headrace_proto.wire import WireError, split_request

log = logging.getLogger(__name__)

MAX_LOOKS = 3  # one more than it takes: a request is on its way in for some microseconds
UNREAD = OverloadedError("clients do not read their replies; try later")

REPLY_S = 3e-3
REPLY_SHARE = 0.06


class Call(Protocol):
    """One call of a client that waits for its answer."""

    def metadata(self) -> Metadata:
        """Return what the client sent beside the message; keys are in lower case."""

    def respond(self, reply: bytes) -> None:
        """Send the reply; a caller that has left is no error."""

    def fail(self, status: Status) -> None:
        """End the call with an error; a caller that has left is no error."""


class Stream(Protocol):
    """A streaming RPC that requests come by."""

    def line_for(self, line: Line) -> Line:
        """Return the line to serve a request that would wait in this one.

        Raises:
            HeadraceError: There is none.
        """


class InferService:
    """Serves ModelInfer for all transports."""

    def __init__(
        self,
        catalog: Catalog,
        link: Link,
        limits: Limits,
        *,
        clock: Callable[[], float],
        max_request_bytes: int,
        overload: grpc.StatusCode = grpc.StatusCode.UNAVAILABLE,
        regions: RegionTable | None = None,
    ) -> None:
        self._link = link
        self._clock = clock
        self._preparer = Preparer(
            catalog, limits, self._submit_of, regions, max_early_bytes=max_request_bytes
        )
        self._max_request_bytes = max_request_bytes
        self._overload = overload
        self.on_replied: Callable[[Request, float], None] | None = None  # told of every reply

    def accept(
        self,
        message: bytes,
        call: Call,
        *,
        received_at: float,
        deadline: float | None,
        stream: Stream | None = None,
        num_looks: int = 1,
    ) -> Request | None:
        """Check a message and hand it over; the call is answered now or later, once.

        Args:
            message: A serialized ModelInferRequest.
            call: Where the answer goes.
            received_at: Clock seconds when the message was there.
            deadline: Clock seconds, None for none.
            stream: That it came by; then the reply goes out as a ModelStreamInferResponse.
            num_looks: How often the model has been looked up, this time included.

        Returns:
            The request, for a later `Link.cancel`; None when it was refused at once.
        """
        request: Request | None = None
        try:
            if len(message) > self._max_request_bytes:
                raise self._too_large(message)
            parts = split_request(message)
            prepared, tensors = self._preparer.prepare(parts.head, parts.raw)
            line = prepared.served.line
            now = self._clock()
            request = prepared.make(
                line if stream is None else stream.line_for(line),
                prepared.layout or prepared.layout_of(tensors),
                tensors,
                rows=prepared.rows,
                deadline=reply_by(deadline, received_at),
                received_at=received_at,
                parsed_at=now,
                on_end=self._on_end,
                tag=(call, prepared.writer, parts.id, stream is not None),
            )
            if prepared.wishes is not None:
                request.priority, request.timeout_s, source = prepared.wishes
                request.source = source or source_of(call.metadata())
            prepared.submit(request, now)
        except Exception as error:  # noqa: BLE001 -- every message gets an answer
            if request is not None:
                request.let_go()
            how = (received_at, deadline, stream, num_looks)
            return self._failed(error, message, call, how)
        return request

    def _submit_of(self, served: Served, form: object) -> Submit:
        """Return where requests to a model go, of one form; see `Preparer`."""
        if served.cache is None or form is None:
            return self._link.submit
        return CachedForm(self._link, served.cache, form, clock=self._clock).submit

    def _too_large(self, message: bytes) -> TooLargeError:
        return TooLargeError(
            f"Received message larger than max ({len(message)} vs. {self._max_request_bytes}); the "
            "operator can raise --grpc-max-request-bytes"
        )

    def refuse(self, call: Call, error: Exception) -> None:
        """End a call with the status of an error; a bug is logged."""
        if not isinstance(error, HeadraceError):
            log.error("a request failed because of a bug", exc_info=error)
        call.fail(status_of(error, self._overload))

    def _failed(
        self,
        error: Exception,
        message: bytes,
        call: Call,
        how: tuple[float, float | None, Stream | None, int],
    ) -> Request | None:
        """End a call that could not be handed over, or look up anew which version serves it."""
        if isinstance(error, RetiredError):
            self._preparer.forget()
            received_at, deadline, stream, num_looks = how
            if num_looks < MAX_LOOKS:
                return self.accept(
                    message,
                    call,
                    received_at=received_at,
                    deadline=deadline,
                    stream=stream,
                    num_looks=num_looks + 1,
                )
        if isinstance(error, WireError):
            error = RequestError(f"the message is not a ModelInferRequest: {error}")
        self.refuse(call, error)
        return None

    def _on_end(
        self, request: Request, outputs: Sequence[Output] | None, error: Exception | None
    ) -> None:
        call: Call
        writer: ReplyWriter
        call, writer, request_id, in_stream = request.tag
        write = writer.write_in_stream if in_stream else writer.write
        if error is None:
            assert outputs is not None
            try:
                call.respond(write(request_id, outputs))
            except Exception as failure:  # noqa: BLE001 -- whatever it is, the call gets an answer
                error = failure
            else:
                now = self._clock()
                if request.record(now) is not None and self.on_replied is not None:
                    self.on_replied(request, now)
                return
        if isinstance(error, UnavailableError | DeviceError):
            self._preparer.forget()  # its slots have failed, and an older version may work
        request.record_failure(error)
        self.refuse(call, error)


def id_of(request: Request) -> str:
    """Return the id that a client gave to a request."""
    request_id: str = request.tag[2]
    return request_id


def reply_by(deadline: float | None, received_at: float) -> float | None:
    """Return by when a reply must leave to be there in time, in clock seconds.

    A client's clock ran before the message was here, and runs until its reply is read: so much is
    left for both, a share of short deadlines. When a model is overloaded everybody is served just
    in time; without this, nearly all replies came a millisecond late (docs/benchmarks.md).
    """
    if deadline is None:
        return None
    return deadline - min(REPLY_S, REPLY_SHARE * (deadline - received_at))
