"""Answers a request from the response cache, or keeps the reply that it gets.

Where a request goes was settled with its head (`rpc/prepare.py`): straight to the link, or first to
`CachedForm.submit`. So models without a cache pay for nothing.

- Equal requests that are in the server at the same time each run; the first reply is kept.
- Errors are never kept.
- A reply that was kept is refused like any other where its model takes nothing more, and waits for
  older ones where the model preserves order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from headrace.metrics import ModelMetrics
from headrace.response_cache.store import Kept, ModelCache
from headrace.slots.batch import Output

if TYPE_CHECKING:
    from headrace.link.base import Link
    from headrace.rpc.reply import ReplyWriter
    from headrace.scheduling.request import Request

Clock = Callable[[], float]
Submit = Callable[["Request", float], None]


def nowhere(*_: object) -> Submit:
    """Return where requests go that are checked and no more."""
    return _refuse


def _refuse(*_: object) -> None:
    raise RuntimeError("a request that was only to be checked was handed over")


class CachedForm:
    """Where requests of one form go: those that differ in their tensors' bytes alone."""

    def __init__(self, link: Link, cache: ModelCache, form: object, *, clock: Clock) -> None:
        """Prepare.

        Args:
            link: Where requests go that nobody asked before.
            cache: The model's.
            form: All that decides the answer beside the tensors' bytes.
            clock: The seconds that requests are stamped with.
        """
        self._link = link
        self._cache = cache
        self._digest = cache.digest(form)
        self._clock = clock

    def submit(self, request: Request, now: float) -> None:
        """Answer the request from the cache or hand it over; as `Link.submit`."""
        key = self._digest.of(request.tensors)
        kept = self._cache.find(key)
        call, writer, *rest = request.tag
        found_at = self._clock()
        timed = _Timed(request.line.metrics, self._clock, request.received_at, now, found_at)
        if kept is None:
            request.tag = (call, _Keeping(writer, self._cache, key, timed), *rest)
            request.parsed_at = found_at
            self._link.submit(request, found_at)
        else:
            request.tag = (call, _Again(writer, kept, timed), *rest)
            self._link.answer(request)


class _Timed(NamedTuple):
    """When a request was looked up, and where that is counted."""

    metrics: ModelMetrics
    clock: Clock
    received_at: float
    parsed_at: float
    found_at: float

    @property
    def looked_up_s(self) -> float:
        """What the digest and the look-up took."""
        return self.found_at - self.parsed_at


class _Keeping:
    """Writes the reply of a request that has run, and keeps it."""

    __slots__ = ("_cache", "_key", "_timed", "_writer")

    def __init__(self, writer: ReplyWriter, cache: ModelCache, key: bytes, timed: _Timed) -> None:
        self._writer = writer
        self._cache = cache
        self._key = key
        self._timed = timed

    def write(self, request_id: str, outputs: Sequence[Output]) -> bytes:
        """Return the reply; see `ReplyWriter.write`."""
        return self._keep(self._writer.write(request_id, outputs), is_bare=not request_id)

    def write_in_stream(self, request_id: str, outputs: Sequence[Output]) -> bytes:
        """Return the reply on a stream."""
        return self._keep(self._writer.write_in_stream(request_id, outputs), is_bare=False)

    def _keep(self, reply: bytes, *, is_bare: bool) -> bytes:
        timed = self._timed
        began_at = timed.clock()
        self._cache.keep(self._key, Kept(reply, len(reply) - self._writer.body_bytes, is_bare))
        timed.metrics.cache.miss(timed.looked_up_s + timed.clock() - began_at)
        return reply


class _Again:
    """Writes a reply that was kept, for another request."""

    __slots__ = ("_kept", "_timed", "_writer")

    def __init__(self, writer: ReplyWriter, kept: Kept, timed: _Timed) -> None:
        self._writer = writer
        self._kept = kept
        self._timed = timed

    def write(self, request_id: str, _: Sequence[Output]) -> bytes:
        """Return the reply; see `ReplyWriter.write`."""
        kept, began_at = self._kept, self._timed.clock()
        is_same = kept.is_bare and not request_id
        reply = kept.reply if is_same else self._writer.rewrite(request_id, kept.body)
        return self._counted(reply, began_at)

    def write_in_stream(self, request_id: str, _: Sequence[Output]) -> bytes:
        """Return the reply on a stream."""
        began_at = self._timed.clock()
        reply = self._writer.rewrite_in_stream(request_id, self._kept.body)
        return self._counted(reply, began_at)

    def _counted(self, reply: bytes, began_at: float) -> bytes:
        timed = self._timed
        ended_at = timed.clock()
        timed.metrics.answered_from_cache(
            timed.parsed_at - timed.received_at,
            timed.looked_up_s + ended_at - began_at,
            ended_at - timed.received_at,
        )
        return reply
