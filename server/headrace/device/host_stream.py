"""Streams of the host device: one with a worker thread, and one that works on the caller's thread.

Rules
- Work runs in the order of enqueueing. What it raises is kept and given to the next event, and the
  stream goes on: later work and later events are not touched.
- The thread that enqueues never waits and takes no lock but the queue's own.
- The worker holds on to nothing while it waits: no buffer outlives its last use because of it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from ctypes import memmove, memset
from functools import partial
from queue import SimpleQueue
from time import perf_counter
from typing import TYPE_CHECKING

from headrace.device.base import DevicePtr, Event, HostPtr, StreamHandle
from headrace.device.flag_event import FlagEvent
from headrace.device.ledger import STREAM_METHODS, Ledger, seal

if TYPE_CHECKING:
    from headrace.device.host import HostDevice

log = logging.getLogger(__name__)

_Item = Callable[[], object] | tuple[FlagEvent, int] | None  # work, a recording, or the end


class HostStream:
    """A queue and the thread that empties it."""

    def __init__(self, device: HostDevice, ledger: Ledger) -> None:
        self._name = ledger.enter("stream")
        self.handle = StreamHandle(id(self))
        self._device = device
        self._ledger = ledger
        self._queue: SimpleQueue[_Item] = SimpleQueue()
        # A daemon: a process that dies without closing its streams must not hang in its last step.
        self._worker = threading.Thread(
            target=self._run, name=f"headrace-{self._name.replace(' ', '-')}", daemon=True
        )
        self._worker.start()

    def copy_h2d(self, dst: DevicePtr, src: HostPtr, size_bytes: int) -> None:
        """Enqueue a copy; rarely needed, because engines read the block as it is."""
        if size_bytes:
            self._queue.put(partial(memmove, dst, src, size_bytes))

    def copy_d2h(self, dst: HostPtr, src: DevicePtr, size_bytes: int) -> None:
        """Enqueue a copy; rarely needed, because engines write the block as it is."""
        if size_bytes:
            self._queue.put(partial(memmove, dst, src, size_bytes))

    def copy_d2d(self, dst: DevicePtr, src: DevicePtr, size_bytes: int) -> None:
        """Enqueue a copy; nobody needs it here."""
        if size_bytes:
            self._queue.put(partial(memmove, dst, src, size_bytes))

    def clear(self, dst: DevicePtr, size_bytes: int) -> None:
        """Enqueue zeros; rarely needed, too."""
        if size_bytes:
            self._queue.put(partial(memset, dst, 0, size_bytes))

    def launch(self, work: Callable[[], None]) -> None:
        """Run `work` on the worker when its turn comes."""
        self._queue.put(work)

    def record(self, event: Event) -> None:
        """Record the event behind all the work enqueued so far."""
        assert isinstance(event, FlagEvent), "an event of another device"
        assert not event.is_closed, f"{event.name} is recorded after its close()"
        event.num_recorded += 1
        self._queue.put((event, event.num_recorded))

    def synchronize(self) -> None:
        """Wait for everything enqueued; errors stay with the events."""
        reached = threading.Event()
        self._queue.put(reached.set)
        reached.wait()

    def close(self) -> None:
        """Finish what is enqueued and join the worker; a second call does nothing."""
        if self._worker.is_alive():
            self._queue.put(None)
            self._worker.join()
            self._ledger.strike(self._name)
            seal(self, self._name, STREAM_METHODS)

    def _run(self) -> None:
        get = self._queue.get
        error: BaseException | None = None
        while (item := get()) is not None:
            if isinstance(item, tuple):
                event, ticket = item
                event.finish(ticket, error, perf_counter() if event.is_timed else 0.0)
                error = None
                del event
                self._tell()
            else:
                try:
                    item()
                except BaseException as raised:  # noqa: BLE001 - the event carries it, of any kind
                    error = error or raised
            item = None
        if error is not None:
            log.error("%s was closed with an error that no event saw", self._name, exc_info=error)

    def _tell(self) -> None:
        on_progress = self._device.on_progress
        if on_progress is not None:
            try:
                on_progress()
            except Exception:
                log.exception("on_progress failed; the stream goes on")


class InlineStream:
    """A stream that is always empty: everything runs at once, on the thread that enqueues it.

    For models that run shorter than a thread hand-over. An event is done when `record` returns, so
    `on_progress` is not called: who could want to know knows.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._name = ledger.enter("stream")
        self.handle = StreamHandle(id(self))
        self._ledger = ledger
        self._is_closed = False
        self._error: Exception | None = None

    def copy_h2d(self, dst: DevicePtr, src: HostPtr, size_bytes: int) -> None:
        """Copy at once."""
        if size_bytes:
            memmove(dst, src, size_bytes)

    def copy_d2h(self, dst: HostPtr, src: DevicePtr, size_bytes: int) -> None:
        """Copy at once."""
        if size_bytes:
            memmove(dst, src, size_bytes)

    def copy_d2d(self, dst: DevicePtr, src: DevicePtr, size_bytes: int) -> None:
        """Copy at once."""
        if size_bytes:
            memmove(dst, src, size_bytes)

    def clear(self, dst: DevicePtr, size_bytes: int) -> None:
        """Write zeros at once."""
        if size_bytes:
            memset(dst, 0, size_bytes)

    def launch(self, work: Callable[[], None]) -> None:
        """Run `work` before returning; what it raises is kept for the next event."""
        try:
            work()
        except Exception as raised:  # noqa: BLE001 - the event carries it, of any kind
            self._error = self._error or raised

    def record(self, event: Event) -> None:
        """Mark the event as done."""
        assert isinstance(event, FlagEvent), "an event of another device"
        assert not event.is_closed, f"{event.name} is recorded after its close()"
        event.error = self._error
        self._error = None
        if event.is_timed:
            event.time_s = perf_counter()
        event.num_recorded += 1
        event.num_finished = event.num_recorded

    def synchronize(self) -> None:
        """Do nothing: nothing can be waiting."""

    def close(self) -> None:
        """Close the stream; a second call does nothing."""
        if not self._is_closed:
            self._is_closed = True
            self._ledger.strike(self._name)
            seal(self, self._name, STREAM_METHODS)
            if self._error is not None:
                log.error(
                    "%s was closed with an error that no event saw",
                    self._name,
                    exc_info=self._error,
                )
