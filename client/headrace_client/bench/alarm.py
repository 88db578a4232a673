"""A timer for an event loop that is exact to some tens of microseconds.

The loops' own timers count whole milliseconds (epoll's time-out does; uvloop's libuv too), which is
longer than many models take. Linux has timers that epoll waits for like for a socket.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import time
from collections.abc import Callable
from typing import Protocol

_CLOCK_MONOTONIC = 1  # of <time.h>; time.monotonic() reads the same clock
_ABSOLUTE = 1  # TFD_TIMER_ABSTIME of <sys/timerfd.h>


class Alarm(Protocol):
    """Calls a function once at a time."""

    def set(self, time_s: float) -> None:
        """Ring at this time, at once if it is past; an earlier order is forgotten."""

    def close(self) -> None:
        """Ring no more. May be called again."""


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


class TimerFd:
    """Linux's timer as a file descriptor; times are those of `time.monotonic`.

    Raises:
        AttributeError: The system has no such timers.
        OSError: It gives none.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, ring: Callable[[], None]) -> None:
        self._loop = loop
        self._ring = ring
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = self._libc.timerfd_create(_CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        loop.add_reader(self._fd, self._expired)

    def set(self, time_s: float) -> None:
        """Ring at this time, at once if it is past; an earlier order is forgotten."""
        nanoseconds = max(1, int(time_s * 1e9))  # 0 would switch it off
        at = _Timespec(*divmod(nanoseconds, 1_000_000_000))
        order = _Itimerspec(_Timespec(0, 0), at)
        if self._libc.timerfd_settime(self._fd, _ABSOLUTE, ctypes.byref(order), None):
            raise OSError(ctypes.get_errno(), "timerfd_settime")

    def close(self) -> None:
        """Ring no more. May be called again."""
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _expired(self) -> None:
        try:
            os.read(self._fd, 8)
        except BlockingIOError:  # set anew in this very turn of the loop
            return
        self._ring()


class LoopTimer:
    """The loop's own timer, for systems without the other, and for virtual time."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, ring: Callable[[], None], clock: Callable[[], float]
    ) -> None:
        self._loop = loop
        self._ring = ring
        self._clock = clock
        self._handle: asyncio.TimerHandle | None = None

    def set(self, time_s: float) -> None:
        """Ring at this time, at once if it is past; an earlier order is forgotten."""
        self.close()
        self._handle = self._loop.call_later(max(0.0, time_s - self._clock()), self._ring)

    def close(self) -> None:
        """Ring no more. May be called again."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None


def exact_alarm(loop: asyncio.AbstractEventLoop, ring: Callable[[], None]) -> Alarm:
    """Open the most exact timer that the system has; times are those of `time.monotonic`."""
    try:
        return TimerFd(loop, ring)
    except (AttributeError, OSError):  # no Linux
        return LoopTimer(loop, ring, time.monotonic)
