"""Drives the core from an asyncio loop: steps it on arrivals and while work is in flight.

Rules
- The core is stepped on the loop's thread only; launchers ask for a step with `wake_threadsafe`.
- `slots/wait.py` says when to sweep the poller next. Up to then it sleeps in the loop's thread, on
  purpose: a loop's own timers are too coarse (epoll counts milliseconds). Each sleep is short, the
  loop gets its turn after it, and none is taken right after requests came in.
- A longer wait is left to the loop, which requests wake.
- A batch that waits for company is looked at in time: by such sleeps too, unless the device tells
  when it has done something and is at work, so that a step comes anyway.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from math import inf

from headrace.link.base import Link
from headrace.slots.wait import LONGEST_NAP_S, Pace, Wait

COARSE_S = 0.003  # from here on the loop's own timers will do
COARSE_ERROR_S = 0.002  # they count milliseconds, and so does the time that they start from


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
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._link = link
        self._loop = loop
        self._is_polled = wait is not Wait.NOTIFY
        self._pace = Pace(wait, nap_s=nap_s)
        self._clock = clock
        self._sleep = sleep
        self._sweep_at = 0.0  # clock seconds until which a tick may sleep
        self._has_news = False  # requests came in since the last tick
        self._is_scheduled = False
        self._is_woken = False
        self._timer: asyncio.TimerHandle | None = None
        self._look_at = inf  # clock seconds at which the timer fires

    def step(self) -> None:
        """Step now; called when a request has just been submitted."""
        self._has_news = True
        self._step()

    def _step(self) -> None:
        now = self._clock()
        if self._link.step(now):
            self._sweep_at = now
            self._schedule()
        elif self._is_polled and self._link.is_polling:
            self._sweep_later()
        elif not self._link.is_at_rest:
            look = self._link.next_look(now)
            if look is not None and self._link.is_polling:  # what is done will wake us
                self._look_later(now, look)
            elif look is not None:
                self._rest_until(now, look)

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
        if not self._has_news:
            self._nap()
        self._has_news = False
        self._step()

    def _sweep_later(self) -> None:
        now = self._clock()
        look = self._pace.next_look(now, self._link.due_at)
        if look > now:  # of requests that wait: a deadline, or a batch that should be closed
            waiting = self._link.next_look(now)
            look = look if waiting is None else min(look, waiting)
        self._rest_until(now, look)

    def _rest_until(self, now: float, look: float) -> None:
        self._sweep_at = look
        if look - now >= COARSE_S:
            self._look_later(now, look - COARSE_ERROR_S)
        else:
            self._schedule()

    def _nap(self) -> None:
        began_at = self._clock()
        nap_s = min(self._sweep_at - began_at, LONGEST_NAP_S)
        if nap_s > 0:
            self._sleep(nap_s)
            self._pace.woke(nap_s, self._clock() - began_at)

    def _look_later(self, now: float, look: float) -> None:
        """Set one timer for the earliest moment at which a step may do something new."""
        if look >= self._look_at:
            return  # an earlier timer is set; if it finds nothing to do, it sets the next
        if self._timer is not None:
            self._timer.cancel()
        self._look_at = look
        self._timer = self._loop.call_later(max(0.0, look - now), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._look_at = inf
        self._step()
