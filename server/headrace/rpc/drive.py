"""Drives the core from an asyncio loop: steps it on arrivals and while work is in flight.

Rules
- The core is stepped on the loop's thread only; launchers ask for a step with `wake_threadsafe`.
- Between two sweeps of the poller it spins, naps or waits to be woken (`slots/wait.py`). A nap
  sleeps in the loop's thread on purpose: tens of microseconds, and a loop's own timers are too
  coarse for that (epoll counts milliseconds).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from math import inf

from headrace.link.base import Link
from headrace.slots.wait import Wait


class LoopDriver:
    """Calls `Link.step` whenever it should be called."""

    def __init__(
        self,
        link: Link,
        loop: asyncio.AbstractEventLoop,
        wait: Wait,
        *,
        nap_s: float,
        clock: Callable[[], float],
    ) -> None:
        self._link = link
        self._loop = loop
        self._wait = wait
        self._nap_s = nap_s
        self._clock = clock
        self._is_scheduled = False
        self._is_woken = False
        self._timer: asyncio.TimerHandle | None = None
        self._look_at = inf  # clock seconds at which the timer fires

    def step(self) -> None:
        """Step now; called when a request has just been submitted."""
        now = self._clock()
        has_more = self._link.step(now)
        if has_more or (self._wait is not Wait.NOTIFY and self._link.is_polling):
            self._schedule()
        elif not self._link.is_idle:
            self._look_later(now)

    def wake_threadsafe(self) -> None:
        """Ask for a step from another thread; many calls before the step make one."""
        if not self._is_woken:
            self._is_woken = True
            self._loop.call_soon_threadsafe(self._on_woken)

    def _on_woken(self) -> None:
        self._is_woken = False  # before the step: what ends during it wakes us again
        self.step()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._tick)

    def _tick(self) -> None:
        self._is_scheduled = False
        if self._wait is Wait.NAP and self._link.is_polling:
            time.sleep(self._nap_s)
        self.step()

    def _look_later(self, now: float) -> None:
        """Set one timer for the earliest moment at which a step may do something new."""
        look = self._link.next_look(now)
        if look is None or look >= self._look_at:
            return  # an earlier timer is set; if it finds nothing to do, it sets the next
        if self._timer is not None:
            self._timer.cancel()
        self._look_at = look
        self._timer = self._loop.call_later(max(0.0, look - now), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._look_at = inf
        self.step()
