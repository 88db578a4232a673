"""How far a build is: TensorRT's nested phases, told to a listener on whatever thread they come.

A listener that says no ends the build after its present step: that is how Ctrl-C gets in, since the
thread that builds is inside TensorRT.
"""

from __future__ import annotations

import threading
from typing import Any, Protocol


class Listener(Protocol):
    """Hears of phases; called from TensorRT's threads, one call at a time."""

    def started(self, phase: str, parent: str | None, num_steps: int) -> None:
        """A phase has begun, inside another or none."""

    def stepped(self, phase: str, step: int) -> None:
        """A step of the phase is done; steps count from 0."""

    def finished(self, phase: str) -> None:
        """The phase has ended, also when not all its steps were done."""


class Progress:
    """Passes on what a build reports, and stops it when asked to."""

    def __init__(self, listener: Listener | None) -> None:
        self._listener = listener
        self._lock = threading.Lock()
        self._is_cancelled = threading.Event()

    @property
    def is_cancelled(self) -> bool:
        """True once `cancel` was called."""
        return self._is_cancelled.is_set()

    def cancel(self) -> None:
        """End the build after its present step."""
        self._is_cancelled.set()

    def started(self, phase: str, parent: str | None, num_steps: int) -> None:
        """Pass on the start of a phase."""
        with self._lock:
            if self._listener:
                self._listener.started(phase, parent, num_steps)

    def stepped(self, phase: str, step: int) -> bool:
        """Pass on a step; return False to end the build."""
        with self._lock:
            if self._listener:
                self._listener.stepped(phase, step)
        return not self.is_cancelled

    def finished(self, phase: str) -> None:
        """Pass on the end of a phase."""
        with self._lock:
            if self._listener:
                self._listener.finished(phase)


def make_monitor(trt: Any, progress: Progress) -> Any:
    """Make an `IProgressMonitor` of this TensorRT that reports to `progress`."""

    def phase_start(_self: Any, phase: str, parent: str | None, num_steps: int) -> None:
        progress.started(phase, parent, num_steps)

    def step_complete(_self: Any, phase: str, step: int) -> bool:
        return progress.stepped(phase, step)

    def phase_finish(_self: Any, phase: str) -> None:
        progress.finished(phase)

    members = {
        "phase_start": phase_start,
        "step_complete": step_complete,
        "phase_finish": phase_finish,
    }
    return type("ProgressMonitor", (trt.IProgressMonitor,), members)()
