"""Shows how far a build is: bars on a terminal, a line for each step of the whole elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from headrace.escape import printable

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from headrace.building.progress import Listener


@contextmanager
def shown(stream: TextIO = sys.stderr) -> Iterator[Listener]:
    """Yield what shows the phases of a build for as long as it lasts."""
    if not stream.isatty():
        yield Lines(stream)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    console = Console(file=stream)
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as progress:
        yield Bars(progress)


class Lines:
    """A line for each step of the outermost phase; inner ones may have thousands."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._outermost: tuple[str, int] | None = None  # name, number of steps

    def started(self, phase: str, parent: str | None, num_steps: int) -> None:
        """Take note of the outermost phase."""
        if parent is None and self._outermost is None:
            self._outermost = phase, num_steps
            self._stream.write(f"{printable(phase)}: 0/{num_steps}\n")

    def stepped(self, phase: str, step: int) -> None:
        """Write a line when the step is the outermost phase's."""
        if self._outermost and phase == self._outermost[0]:
            self._stream.write(f"{printable(phase)}: {step + 1}/{self._outermost[1]}\n")
            self._stream.flush()

    def finished(self, phase: str) -> None:
        """Be ready for the next outermost phase."""
        if self._outermost and phase == self._outermost[0]:
            self._outermost = None


class Bars:
    """A bar for each phase that is under way, inner ones indented."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._tasks: dict[str, tuple[TaskID, int]] = {}  # phase → its bar, its depth

    def started(self, phase: str, parent: str | None, num_steps: int) -> None:
        """Add a bar below the parent's."""
        from rich.markup import escape

        self.finished(phase)
        _bar, depth = self._tasks.get(parent or "", (None, -1))
        text = f"{'  ' * (depth + 1)}{escape(printable(phase))}"
        self._tasks[phase] = self._progress.add_task(text, total=num_steps), depth + 1

    def stepped(self, phase: str, step: int) -> None:
        """Move the bar on."""
        if phase in self._tasks:
            self._progress.update(self._tasks[phase][0], completed=step + 1)

    def finished(self, phase: str) -> None:
        """Take the bar away."""
        if phase in self._tasks:
            self._progress.remove_task(self._tasks.pop(phase)[0])
