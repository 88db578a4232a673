"""The link inside one process: a lock and a method call.

Rules
- One thread at a time is in the core. Under `grpcio` that is the event loop's; under `native` it is
  the receiving loop's or, on a host device, a launcher's that has just finished its work.
- `on_end` runs inside the lock: it must not call back into the link.
"""

from __future__ import annotations

import logging
import threading

from headrace.errors import DeviceError, HeadraceError, UnavailableError
from headrace.scheduling.line import Line
from headrace.scheduling.reaper import Reaper
from headrace.scheduling.request import Request
from headrace.scheduling.scheduler import Scheduler
from headrace.slots.blocks import BlockPool

log = logging.getLogger(__name__)

GIVEN_BACK = UnavailableError("the slot that the stream had for itself has failed")


class LocalLink:
    """Front door and scheduler in one process."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._reaper = Reaper()
        self._lock = threading.Lock()

    def submit(self, request: Request, now: float) -> None:
        """Hand a request over; see `Link.submit`."""
        with self._lock:
            self._scheduler.submit(request, now)

    def answer(self, request: Request) -> None:
        """End a request whose reply is known, as long as it would be served; see `Link.answer`."""
        with self._lock:
            self._scheduler.answer(request)

    def cancel(self, request: Request) -> None:
        """Say that the caller has left."""
        with self._lock:
            self._scheduler.cancel(request)

    def step(self, now: float) -> bool:
        """Do what can be done now; True when there is more to do at once.

        A bug in the core must not leave callers waiting behind a server that says it is ready: it
        ends everything and is never ready again.
        """
        with self._lock:
            try:
                if self._reaper.lines:
                    self._reaper.reap(now)
                return self._scheduler.step(now)
            except Exception as error:
                log.critical("the core failed because of a bug; restart the server", exc_info=True)
                self._scheduler.break_down(DeviceError(f"the core failed: {type(error).__name__}"))
                return False

    def next_look(self, now: float) -> float | None:
        """Return the clock seconds at which to step again though nothing happens."""
        with self._lock:
            look = self._scheduler.next_look(now)
            if self._reaper.lines and (reap_at := self._reaper.next_reap()) is not None:
                return reap_at if look is None else min(look, reap_at)
            return look

    @property
    def is_idle(self) -> bool:
        """Whether no request waits and none is in flight.

        Between steps only: within one, requests are on their way from one place to another.
        """
        with self._lock:
            return self._scheduler.is_idle

    @property
    def is_at_rest(self) -> bool:
        """Whether it is idle, and there is nothing to do later unless a request comes."""
        with self._lock:
            if self._reaper.lines and self._reaper.next_reap() is not None:
                return False
            return self._scheduler.is_idle

    @property
    def is_polling(self) -> bool:
        """Whether something is in flight."""
        with self._lock:
            return self._scheduler.is_polling

    @property
    def due_at(self) -> float:
        """When something in flight is likely to be done, in clock seconds."""
        return self._scheduler.poller.due_at

    def add_line(self, line: Line, blocks: BlockPool | None = None) -> None:
        """Serve a line from now on, and take over the free blocks that it was warmed up with."""
        with self._lock:
            self._scheduler.add_line(line, blocks)
            self._reaper.add(line)

    def retire_line(self, line: Line) -> None:
        """From now on refuse every request of a line with a RetiredError."""
        with self._lock:
            line.retire()

    def is_done_with(self, line: Line) -> bool:
        """Whether every request that came for a line has been told how it ended."""
        with self._lock:
            return self._scheduler.is_done_with(line)

    def drop_waiting(self, line: Line, error: HeadraceError) -> None:
        """End what waits for a line; calls are answered on the caller's thread."""
        with self._lock:
            for each in (line, *line.pins):
                self._scheduler.drop_waiting(each, error)
            self._scheduler.ensembles.settle()

    def remove_line(self, line: Line) -> None:
        """Forget a line that is done with."""
        with self._lock:
            self._scheduler.remove_line(line)
            self._reaper.remove(line)

    def pin(self, line: Line) -> Line:
        """Take a slot of a model out for one stream; see `PinLink.pin`."""
        with self._lock:
            return line.pin()

    def unpin(self, line: Line, pinned: Line) -> None:
        """Give the slot back to all."""
        with self._lock:
            self._scheduler.drop_waiting(pinned, GIVEN_BACK)
            line.unpin(pinned)

    def refuse_new(self) -> None:
        """From now on refuse every request; what is in is served."""
        with self._lock:
            self._scheduler.refuse_new()

    def close(self) -> None:
        """Refuse new requests and end those that never reached the device."""
        with self._lock:
            self._scheduler.close()
