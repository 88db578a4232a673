"""The front door over pygrpc-native: ModelInfer in batches from Rust threads, the rest behind it.

HTTP/2 and gRPC framing run outside the interpreter lock; calls arrive here in batches and are
answered by id. One thread receives and steps the core. Every other RPC is forwarded by the front to
a grpcio server on a Unix socket, the same one that serves the default transport.

Rules
- Receiving never stops: what cannot be served is refused, because the queue on the Rust side has no
  bound of its own.
- Replies that clients do not read are held on the Rust side, also without bound: beyond
  `max_unsent_bytes` new requests are refused until clients have read.
- Metadata named grpc-* cannot be sent by this front, so overload carries no push-back here.

The only file that imports pygrpc_native; what was found out about it: `docs/native-transport.md`.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import pygrpc_native

from headrace.errors import ConfigError
from headrace.link.base import Link
from headrace.rpc.gate import Gate
from headrace.rpc.infer import UNREAD, InferService
from headrace.rpc.status import Status
from headrace.rpc.wishes import Metadata
from headrace.scheduling.request import Request
from headrace.slots.wait import LONGEST_NAP_S, Pace, Wait
from headrace_proto.service import METHODS

log = logging.getLogger(__name__)

MODEL_INFER = METHODS["ModelInfer"].path
Details = tuple[Metadata, str | None, float | None]  # metadata, peer, seconds before the deadline
NO_DETAILS: Details = ((), None, None)
MAX_EVENTS = 256  # a turn; more are taken in the next
DRAIN_LOOK_S = 0.005
COARSE_S = 0.0012  # from here on receiving with a timeout will do, and calls end it
COARSE_ERROR_S = 0.0002  # of such a timeout


@dataclass(frozen=True, slots=True)
class NativeOptions:
    """How the port is opened."""

    address: str  # "host:port"
    fallback_path: str  # Unix socket of the grpcio server behind
    io_threads: int = 1
    max_concurrent_streams: int = 1024
    max_metadata_bytes: int = 16_384
    keepalive_time_ms: int = 7_200_000
    keepalive_timeout_ms: int = 20_000
    reuse_port: bool = False
    max_unsent_bytes: int = 1 << 30


class _NativeCall:
    """A call that is answered by id."""

    __slots__ = ("call_id", "details", "front", "request")

    def __init__(self, front: NativeFront, call_id: int, details: Details) -> None:
        self.front = front
        self.call_id = call_id
        self.details = details
        self.request: Request | None = None

    def metadata(self) -> Metadata:
        """Return the client's metadata."""
        return self.details[0]

    def respond(self, reply: bytes) -> None:
        """Send the reply; the front copies it before this returns."""
        front = self.front
        front.calls.pop(self.call_id, None)
        front.answered_bytes += len(reply)
        front.native.respond(self.call_id, reply)

    def fail(self, status: Status) -> None:
        """End the call with an error."""
        self.front.calls.pop(self.call_id, None)
        self.front.native.fail(self.call_id, status.code.value[0], status.text)


class NativeFront:
    """Serves ModelInfer natively and drives the core."""

    def __init__(
        self,
        options: NativeOptions,
        infer: InferService,
        link: Link,
        wait: Wait,
        *,
        nap_s: float,
        clock: Callable[[], float],
        bind_thread: Callable[[], None],
        gate: Gate | None = None,
    ) -> None:
        """Bind the port.

        `bind_thread` is called once on the thread that will step the core.

        Raises:
            ConfigError: The address cannot be bound.
        """
        self._infer = infer
        self._link = link
        self._is_polled = wait is not Wait.NOTIFY
        self._pace = Pace(wait, nap_s=nap_s)
        self._clock = clock
        self._bind_thread = bind_thread
        self._gate = gate
        self._max_unsent_bytes = options.max_unsent_bytes
        self.calls: dict[int, _NativeCall] = {}
        self.answered_bytes = 0
        self._sent_bytes = 0
        self._thread = threading.Thread(target=self._run, name="headrace-core", daemon=True)
        self.native = _bound(options)
        self.native.set_fallback(options.fallback_path)
        self.port = self.native.bound_port

    def start(self) -> None:
        """Accept connections; the server behind must be listening."""
        self.native.start()
        self._thread.start()

    def drain(self, grace_s: float) -> None:
        """Wait until every reply has been written out, at most `grace_s`.

        Closing cuts what is still on its way, so the front's own counters are asked.
        """
        give_up_at = self._clock() + grace_s
        while self._clock() < give_up_at:
            if not self.calls and self._num_open() == 0:
                return
            time.sleep(DRAIN_LOOK_S)
        log.warning("%d calls were still open after %g s", self._num_open(), grace_s)

    def close(self) -> None:
        """Stop receiving and cut what is open; a second call does nothing."""
        self.native.close()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()

    def on_progress(self) -> None:
        """A launcher finished its work: step on its thread, which has what the step needs."""
        while self._link.step(self._clock()):
            pass

    def _run(self) -> None:
        self._bind_thread()
        receive = self.native.recv_batch_details
        timeout_ms: int | None = None
        while (events := receive(MAX_EVENTS, timeout_ms)) is not None:
            now = self._clock()
            for kind, call_id, _, payload, _, details in events:
                try:
                    if kind == pygrpc_native.EVENT_CALL:
                        self._accept(call_id, payload or b"", now, details or NO_DETAILS)
                    else:
                        self._cancel(call_id)
                except Exception:
                    log.exception("a call could not be taken in")
            timeout_ms = self._step(has_news=bool(events))

    def _step(self, *, has_news: bool) -> int | None:
        """Step the core; return how long to wait for calls, in milliseconds."""
        now = self._clock()
        if self._link.step(now):
            return 0
        if self._is_polled and self._link.is_polling:
            return 0 if has_news else self._sweep_later()
        if self._link.is_at_rest:
            return None
        look = self._link.next_look(now)
        if look is None:
            return None
        if self._link.is_polling:  # what is done makes its launcher step
            return max(1, math.ceil((look - now) * 1000))
        return self._rest(now, look)

    def _sweep_later(self) -> int:
        """Rest until the next sweep; return as `_rest`."""
        now = self._clock()
        look = self._pace.next_look(now, self._link.due_at)
        if look > now:  # of requests that wait: a deadline, or a batch that should be closed
            waiting = self._link.next_look(now)
            look = look if waiting is None else min(look, waiting)
        return self._rest(now, look)

    def _rest(self, now: float, look: float) -> int:
        """Sleep until it is time, or return the milliseconds that calls may be waited for."""
        rest_s = look - now
        if rest_s >= COARSE_S:
            return int((rest_s - COARSE_ERROR_S) * 1000)
        if rest_s > 0:
            nap_s = min(rest_s, LONGEST_NAP_S)
            time.sleep(nap_s)
            self._pace.woke(nap_s, self._clock() - now)
        return 0

    def _accept(self, call_id: int, message: bytes, now: float, details: Details) -> None:
        call = self.calls[call_id] = _NativeCall(self, call_id, details)
        if self._gate is not None:
            refusal = self._gate.check(MODEL_INFER, details[0])
            if refusal is not None:
                call.fail(refusal)
                return
        if self._has_unread_replies():
            self._infer.refuse(call, UNREAD)
            return
        left_s = details[2]
        deadline = None if left_s is None else now + left_s
        call.request = self._infer.accept(message, call, received_at=now, deadline=deadline)

    def _cancel(self, call_id: int) -> None:
        call = self.calls.pop(call_id, None)
        if call is not None and call.request is not None:
            self._link.cancel(call.request)

    def _has_unread_replies(self) -> bool:
        if self.answered_bytes - self._sent_bytes < self._max_unsent_bytes:
            return False
        self._sent_bytes = sum(status["sent"]["sum"] for status in self._statuses())
        return self.answered_bytes - self._sent_bytes >= self._max_unsent_bytes

    def _num_open(self) -> int:
        method = self._metrics()
        num_ended: int = sum(status["count"] for status in self._statuses())
        return int(method.get("started", 0)) - num_ended

    def _statuses(self) -> list[dict]:  # type: ignore[type-arg]
        return list(self._metrics().get("status", {}).values())

    def _metrics(self) -> dict:  # type: ignore[type-arg]
        metrics = self.native.metrics() or {}
        method: dict = metrics.get("methods", {}).get(MODEL_INFER, {})  # type: ignore[type-arg]
        return method


def _bound(options: NativeOptions) -> pygrpc_native.NativeGrpcFront:
    try:
        return pygrpc_native.NativeGrpcFront(
            options.address,
            [(MODEL_INFER, False)],
            io_threads=options.io_threads,
            call_details=True,
            metrics=True,  # the only way to know that replies have left (`drain`)
            keepalive_time_ms=options.keepalive_time_ms,
            keepalive_timeout_ms=options.keepalive_timeout_ms,
            max_concurrent_streams=options.max_concurrent_streams,
            max_metadata_size=options.max_metadata_bytes,
            reuse_port=options.reuse_port,
        )
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {options.address}: {error}", field="--grpc-port"
        ) from error
