"""An asyncio loop whose time is a number: it never waits, and says when nothing is scheduled."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class NothingScheduledError(AssertionError):
    """The loop would wait for ever."""


class _NeverBlocks(selectors.SelectSelector):
    """Moves the time on instead of waiting."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise NothingScheduledError("the loop waits, and nothing will ever wake it")
        self.now += max(timeout, 0.0)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """For code without threads and sockets: a sleep of an hour takes no time."""

    def __init__(self) -> None:
        self.selector = _NeverBlocks()
        super().__init__(self.selector)
        self.set_debug(False)  # a virtual second is thousands of turns, each noted with its stack

    def time(self) -> float:
        """Return the virtual seconds since the loop was made."""
        return self.selector.now


def run_virtually(main: Coroutine[Any, Any, T]) -> T:
    """Run on a fresh virtual loop."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
