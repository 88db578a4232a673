"""Switches recordings on and off while the server runs; between them a request costs one question.

Rules
- `toggle` may be called at any time, before the server is open and after it is closed, too.
- Slots have their anchor and the front door its watcher only while a recording runs.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

from headrace.device.base import Device
from headrace.errors import DeviceError
from headrace.scheduling.request import Request
from headrace.slots.anchor import Anchor
from headrace.slots.slot import Slot
from headrace.timeline.recorder import Bounds, Recorder

log = logging.getLogger(__name__)


class Watched(Protocol):
    """What tells of requests whose reply has gone."""

    on_replied: Callable[[Request, float], None] | None


class TimelineSwitch:
    """The operator's switch.

    Args:
        path: Of the first recording; later ones have their number before the suffix. None: the
            server was started without one.
        bounds: Of each recording.
        clock: The server's.
    """

    def __init__(self, path: Path | None, bounds: Bounds, *, clock: Callable[[], float]) -> None:
        self._path = path
        self.bounds = bounds  # of the next recording
        self._clock = clock
        self._device: Device | None = None
        self._slots: set[Slot] = set()
        self._watched: Watched | None = None
        self._anchor: Anchor | None = None
        self._recorder: Recorder | None = None
        self._num_recordings = 0
        self._lock = threading.Lock()  # the signal and the writer may both end a recording

    @property
    def is_recording(self) -> bool:
        """Whether a recording runs."""
        return self._recorder is not None

    @property
    def has_file(self) -> bool:
        """Whether there is a file to record into."""
        return self._path is not None

    @property
    def file_name(self) -> str:
        """The name of the file, of the recording that runs or of the next; "" for none."""
        if self._path is None:
            return ""
        recorder = self._recorder
        return (self._next_path(self._path) if recorder is None else recorder.path).name

    def connect(self, device: Device, slots: Iterable[Slot], watched: Watched) -> None:
        """Say what is recorded, once everything is open."""
        self._device, self._slots, self._watched = device, set(slots), watched

    def add(self, slots: Iterable[Slot]) -> None:
        """Record these slots, too, from now on."""
        with self._lock:
            for slot in slots:
                self._slots.add(slot)
                slot.anchor = self._anchor if self._recorder is not None else None

    def remove(self, slots: Iterable[Slot]) -> None:
        """Forget slots that will be closed."""
        with self._lock:
            for slot in slots:
                self._slots.discard(slot)
                slot.anchor = None

    def toggle(self) -> None:
        """End the recording that runs, or begin one; SIGUSR2 calls it."""
        if self.is_recording:
            self.stop()
        elif self._path is None:
            log.warning("SIGUSR2 asks for a timeline, but the server has no --timeline FILE")
        elif self._watched is None:
            log.warning("SIGUSR2 asks for a timeline, but nothing is served yet, or any more")
        else:
            self.start()

    def start(self) -> None:
        """Begin a recording; what prevents it is logged, for serving goes on."""
        with self._lock:
            if self._recorder is not None or self._path is None or self._watched is None:
                return
            assert self._device is not None
            try:
                self._device.bind_thread()
                if self._anchor is None:
                    self._anchor = Anchor(self._device, self._clock)
                else:
                    self._anchor.calibrate()
                self._recorder = Recorder(
                    self._next_path(self._path),
                    self.bounds,
                    clock=self._clock,
                    accuracy_s=self._anchor.accuracy_s,
                    on_end=self.stop,
                )
            except (DeviceError, OSError) as error:
                log.error("no timeline is recorded: %s", error)
                return
            self._num_recordings += 1
            for slot in self._slots:
                slot.anchor = self._anchor
            self._watched.on_replied = self._recorder.note
            log.info("timeline: recording into %s", self._recorder.path)

    def stop(self) -> None:
        """End the recording that runs, if any; its file is complete afterwards."""
        with self._lock:
            recorder, self._recorder = self._recorder, None
            if self._watched is not None:
                self._watched.on_replied = None
            for slot in self._slots:
                slot.anchor = None
        if recorder is not None:
            recorder.close()

    def close(self) -> None:
        """End for good, before the slots are closed; a second call does nothing."""
        self.stop()
        self._watched, self._slots = None, set()
        anchor, self._anchor = self._anchor, None
        if anchor is not None:
            anchor.close()

    def _next_path(self, path: Path) -> Path:
        number = self._num_recordings + 1
        return path if number == 1 else path.with_stem(f"{path.stem}-{number}")
