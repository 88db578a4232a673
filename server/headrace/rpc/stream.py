"""The requests of one streaming RPC and their replies, in the order in which they leave.

Rules
- Pure: no I/O and no clock. The caller writes what `next_reply` gives, then calls `sent`.
- Replies leave in the order of their requests, whatever the order they come in.
- What a stream holds is bounded: while `is_full`, the caller reads no more requests.
- Calls are answered by whichever thread is in the core; all else is for the thread that serves the
  stream. So each of the two has a counter of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from headrace.rpc.infer import id_of
from headrace.rpc.reply import in_band_error
from headrace.rpc.status import Status
from headrace.rpc.wishes import Metadata
from headrace.scheduling.request import Request
from headrace_proto.wire import WireError, split_request

STRICT = ("triton_grpc_error", "true")  # Triton's


@dataclass(frozen=True, slots=True)
class StreamBounds:
    """What one stream may hold before its next request is read.

    Attributes:
        max_requests: Requests whose replies have not been written.
        max_bytes: Of those, tensors in staging blocks and replies; one more request may exceed it.
    """

    max_requests: int = 256
    max_bytes: int = 64 << 20


class HeldBytes:
    """Bytes held for clients: a request's tensors, then its reply until that has been written."""

    __slots__ = ("by_core", "by_stream")

    def __init__(self) -> None:
        self.by_core = 0  # changed by the thread in the core alone
        self.by_stream = 0  # changed by the thread that serves the stream alone

    @property
    def total(self) -> int:
        """How many there are now."""
        return self.by_core + self.by_stream


class StreamCall:
    """One request of a stream, as ModelInfer's service sees it."""

    __slots__ = ("_replies", "answer", "grown_bytes", "request", "request_id", "staged_bytes")

    def __init__(self, replies: OrderedReplies) -> None:
        self._replies = replies
        self.answer: bytes | Status | None = None
        self.request: Request | None = None
        self.request_id = ""  # of a refused one
        self.staged_bytes = 0
        self.grown_bytes = 0  # by how much the reply is larger than what was staged

    def metadata(self) -> Metadata:
        """Return what the client sent when it opened the stream."""
        return self._replies.metadata

    def respond(self, reply: bytes) -> None:
        """Keep the reply, a ModelStreamInferResponse, until its turn."""
        replies = self._replies
        grown_bytes = self.grown_bytes = len(reply) - self.staged_bytes
        replies.held.by_core += grown_bytes
        replies.held_by_all.by_core += grown_bytes
        self.answer = reply
        replies.on_answer()

    def fail(self, status: Status) -> None:
        """Keep the error until its turn."""
        self.answer = status
        self._replies.on_answer()


class OrderedReplies:
    """The requests of one stream that have been read and whose replies are not yet written."""

    def __init__(
        self,
        bounds: StreamBounds,
        held_by_all: HeldBytes,
        on_answer: Callable[[], None],
        metadata: Metadata = (),
    ) -> None:
        """Start empty.

        Args:
            bounds: Of this stream.
            held_by_all: What all streams hold together.
            on_answer: Told of every answer, on whichever thread it comes.
            metadata: The client's; with STRICT in it the first error ends the stream with its
                status, instead of going out as a message.
        """
        self.held = HeldBytes()
        self.held_by_all = held_by_all
        self.on_answer = on_answer
        self.metadata = metadata
        self._bounds = bounds
        self._is_strict = STRICT in metadata
        self._calls: deque[StreamCall] = deque()

    def __len__(self) -> int:
        return len(self._calls)

    @property
    def is_full(self) -> bool:
        """Whether the stream has to write replies before it reads another request."""
        calls, bounds = self._calls, self._bounds
        return len(calls) >= bounds.max_requests or (
            bool(calls) and self.held.total >= bounds.max_bytes
        )

    def add(self) -> StreamCall:
        """Take the next place for a request that has just been read."""
        call = StreamCall(self)
        self._calls.append(call)
        return call

    def accepted(self, call: StreamCall, request: Request) -> None:
        """Note the request that was made for a call; it may have been answered already."""
        call.request = request
        size_bytes = call.staged_bytes = request.layout.size_bytes
        self.held.by_stream += size_bytes
        self.held_by_all.by_stream += size_bytes

    def refused(self, call: StreamCall, message: bytes) -> None:
        """Note which request it was that has been refused, for the error to name it."""
        try:
            call.request_id = split_request(message).id
        except WireError:
            call.request_id = ""  # it has none that could be read

    def next_reply(self) -> bytes | Status | None:
        """Return the message that is next in order, None while it has not come.

        A status ends the stream: nothing behind it may be written.
        """
        if not self._calls:
            return None
        call = self._calls[0]
        answer = call.answer
        if type(answer) is not Status or self._is_strict or answer.ends_stream:
            return answer
        return in_band_error(answer.text, id_of(call.request) if call.request else call.request_id)

    def sent(self) -> None:
        """Forget the request whose reply has been written."""
        call = self._calls.popleft()
        size_bytes = call.staged_bytes + call.grown_bytes
        self.held.by_stream -= size_bytes
        self.held_by_all.by_stream -= size_bytes

    def clear(self, cancel: Callable[[Request], None]) -> None:
        """Cancel what is not answered and forget everything: nobody reads any more.

        `cancel` returns when the core has taken note: from then on no reply of it can come.
        """
        while self._calls:
            call = self._calls[0]
            if call.answer is None and call.request is not None:
                cancel(call.request)
            self.sent()
