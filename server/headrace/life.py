"""The phases of a server's life, and its end: what happens between SIGTERM and exit code 0."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Callable
from enum import IntEnum
from typing import Protocol

from headrace.link.base import Link

log = logging.getLogger(__name__)

EXIT_STOPPED = 0
EXIT_CUT_SHORT = 1  # a second signal came, or the grace was not enough
DRAIN_LOOK_S = 0.005
LAST_REPLIES_S = 0.1  # for replies that are written when the grace is over


class Phase(IntEnum):
    """Where the server is in its life; it only goes up."""

    LOADING = 0
    SERVING = 1
    LAME_DUCK = 2  # not ready any more, still serving: load balancers look elsewhere
    DRAINING = 3  # new requests are refused, those in are finished
    CLOSED = 4


class Door(Protocol):
    """What can be waited for until its replies have left."""

    async def drain(self, grace_s: float) -> None:
        """Wait until every reply has left, at most `grace_s`."""


class Life:
    """The phase of this process, and the wish to end it."""

    def __init__(self, exit_now: Callable[[int], None] = os._exit) -> None:
        """Begin.

        Args:
            exit_now: Ends the process without any clean-up: threads may be inside an engine, where
                nothing can stop them and nothing may be closed under them.
        """
        self.phase = Phase.LOADING
        self.stop_asked = asyncio.Event()
        self._exit_now = exit_now

    def is_serving(self) -> bool:
        """Whether new traffic is welcome: what readiness says of the server itself."""
        return self.phase is Phase.SERVING

    def is_leaving(self) -> bool:
        """Whether the end has begun: models are loaded no more."""
        return self.phase >= Phase.LAME_DUCK

    def is_stopping(self) -> bool:
        """Whether new requests are refused."""
        return self.phase >= Phase.DRAINING

    def on_signal(self) -> None:
        """The first signal asks for the end; the second ends the process at once.

        While models load there is nothing to finish, and the first is enough.
        """
        if self.stop_asked.is_set():
            log.warning("second signal: exiting at once")
            self.exit_now(EXIT_CUT_SHORT)
        self.stop_asked.set()
        if self.phase is Phase.LOADING:
            log.info("told to stop while loading: nothing is served yet")
            self.exit_now(EXIT_STOPPED)

    def exit_now(self, code: int) -> None:
        """End the process here, with what was logged written out."""
        sys.stderr.flush()
        self._exit_now(code)

    async def end(
        self,
        door: Door,
        link: Link,
        *,
        lame_duck_s: float,
        grace_s: float,
        clock: Callable[[], float],
    ) -> bool:
        """Lame duck, then refuse what is new and finish what is in, within `grace_s`.

        Returns:
            Whether everything was finished. If not, an engine is still at work.
        """
        self.phase = Phase.LAME_DUCK
        if lame_duck_s:
            log.info("not ready any more; serving for another %g s", lame_duck_s)
            await asyncio.sleep(lame_duck_s)
        self.phase = Phase.DRAINING
        link.refuse_new()
        log.info("draining: new requests are refused; those in have at most %g s", grace_s)
        give_up_at = clock() + grace_s
        while not link.is_idle and clock() < give_up_at:  # noqa: ASYNC110 -- a thread may step it
            await asyncio.sleep(DRAIN_LOOK_S)
        is_finished = link.is_idle
        if not is_finished:
            log.warning("requests were still in flight after %g s: they are lost", grace_s)
        await door.drain(max(LAST_REPLIES_S, give_up_at - clock()))
        self.phase = Phase.CLOSED
        log.info("closed")
        return is_finished
