"""One recording: samples requests as they end, and writes them from a thread of its own.

Rules
- `note` is called by the thread that steps the core: it appends to a queue and does nothing slow.
- Everything is bounded: the queue, the file's size, the recording's time. What is over is dropped;
  the recording ends by itself when the file is full or its time is up.
- The file is whole after every turn of the writer (`timeline/file.py`).
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from math import isinf
from pathlib import Path

from headrace.scheduling.request import Request
from headrace.slots.batch import Placed
from headrace.timeline.events import Record, Tracks, record_of
from headrace.timeline.file import TraceFile

log = logging.getLogger(__name__)

MAX_PENDING = 20_000  # records; some megabytes
TURN_S = 0.2  # of the writer: so much is lost when the process is killed


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much is recorded.

    Attributes:
        rate: Every so many-th request is recorded, the first one included.
        max_bytes: The file's size.
        max_s: The recording's time.
        max_requests: So many are recorded; 0 for as many as there is room for.
    """

    rate: int = 100
    max_bytes: int = 64 << 20
    max_s: float = 60.0
    max_requests: int = 0


class Recorder:
    """A recording from its making to `close`."""

    def __init__(
        self,
        path: Path,
        bounds: Bounds,
        *,
        clock: Callable[[], float],
        accuracy_s: float,
        on_end: Callable[[], None],
    ) -> None:
        """Begin.

        Args:
            path: The file.
            bounds: How much is recorded.
            clock: The server's.
            accuracy_s: By how much the device's times may be off; infinite when nobody knows.
            on_end: Called once from the writer's thread when a bound was reached.

        Raises:
            OSError: The file cannot be written.
        """
        self._bounds = bounds
        self._clock = clock
        self._zero = clock()
        self._on_end = on_end
        self._pending: deque[Record] = deque()
        self._tracks = Tracks()
        self._num_seen = 0
        self._num_sampled = 0
        self.num_dropped = 0
        about = {
            "program": "headrace",
            "sampled": f"1 of {bounds.rate} requests",
            "device_times_off_by_at_most_us": None if isinf(accuracy_s) else accuracy_s * 1e6,
        }
        self._file = TraceFile(path, about)
        self._is_over = threading.Event()
        self._writer = threading.Thread(target=self._write, name="headrace-timeline", daemon=True)
        self._writer.start()

    @property
    def path(self) -> Path:
        """The file."""
        return self._file.path

    def note(self, request: Request, replied_at: float) -> None:
        """Record a request whose reply has gone, if it is one of the sample.

        Those that were received before the recording began are passed over.
        """
        timing = request.timing
        if not isinstance(timing, Placed) or request.received_at < self._zero:
            return
        number, self._num_seen = self._num_seen, self._num_seen + 1
        if number % self._bounds.rate or self._has_all:
            return
        if len(self._pending) >= MAX_PENDING:
            self.num_dropped += 1
            return
        self._pending.append(record_of(request, timing, self._num_sampled, replied_at))
        self._num_sampled += 1

    @property
    def _has_all(self) -> bool:
        """Whether as many requests are recorded as were wanted."""
        return 0 < self._bounds.max_requests <= self._num_sampled

    def close(self) -> None:
        """Write what is left and close the file; a second call does nothing."""
        self._is_over.set()
        if threading.current_thread() is not self._writer:
            self._writer.join()

    def _write(self) -> None:
        """Turn by turn until told to end or until a bound is reached."""
        why = ""
        try:
            while not why:
                is_over = self._is_over.wait(TURN_S)
                why = self._turn()
                if is_over:
                    break
        except OSError as error:
            why = f"{self.path} cannot be written: {error}"
        finally:
            self._file.close()
        log.info(
            "timeline: %d requests in %s%s%s",
            self._num_sampled,
            self.path,
            f", {self.num_dropped} dropped" if self.num_dropped else "",
            f" ({why})" if why else "",
        )
        if why:
            self._on_end()

    def _turn(self) -> str:
        """Write what is pending; return why the recording is over, "" while it is not."""
        while self._pending:
            if self._file.size_bytes >= self._bounds.max_bytes:
                return "the file is full"
            self._file.add(self._tracks.events(self._pending.popleft(), self._zero))
        if self._has_all:
            return "it has as many requests as were wanted"
        return "its time is up" if self._clock() - self._zero > self._bounds.max_s else ""
