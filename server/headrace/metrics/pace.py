"""Work in slices, so that a thread that does much of it at once lets requests pass.

Who computes holds the interpreter lock. Another thread gets it after 5 ms of waiting
(`sys.getswitchinterval`), and a request needs it several times.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

SLICE_S: Final = 2e-4
"""By tests/load/scrapes.py: a page of 24 models takes 80 ms of CPU. With two a second beside 300
requests, p99 of those was 128 ms under grpcio in one piece (15 to 18 without), 77 in slices of a
millisecond, 21 in these, 27 in half of them; under native 18.5 (7.6), 12.6, 8.9 and 10.1."""

PAUSE_S: Final = 50e-6  # what counts is that the lock is free meanwhile
LEAST_SHARE: Final = 0.1  # of the time, where others need the rest: the work has to end

T = TypeVar("T")


class Pace:
    """Sleeps for a moment whenever a slice of time has been used up.

    Args:
        clock: Seconds.
        sleep: Lets others work.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._until = clock() + SLICE_S

    def step(self) -> None:
        """Go on, or sleep before."""
        paused_at = self._clock()
        if paused_at >= self._until:
            self._sleep(PAUSE_S)
            now = self._clock()
            self._until = now + max(SLICE_S, LEAST_SHARE * (now - paused_at))

    def over(self, items: Iterable[T]) -> Iterator[T]:
        """Yield each, in slices."""
        for item in items:
            self.step()
            yield item
