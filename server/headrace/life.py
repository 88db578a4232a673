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

EXIT_AT_ONCE = 1  # what a second signal ends the process with
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

    def __init__(self) -> None:
        self.phase = Phase.LOADING
        self.stop_asked = asyncio.Event()

    def is_serving(self) -> bool:
        """Whether new traffic is welcome: what readiness says of the server itself."""
        return self.phase is Phase.SERVING

    def is_stopping(self) -> bool:
        """Whether new requests are refused."""
        return self.phase >= Phase.DRAINING

    def on_signal(self) -> None:
        """The first signal asks for the end; the second ends the process at once."""
        if self.stop_asked.is_set():
            log.warning("second signal: exiting at once")
            sys.stderr.flush()
            os._exit(EXIT_AT_ONCE)
        self.stop_asked.set()

    async def end(
        self,
        door: Door,
        link: Link,
        *,
        lame_duck_s: float,
        grace_s: float,
        clock: Callable[[], float],
    ) -> None:
        """Lame duck, then refuse what is new and finish what is in, within `grace_s`."""
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
        if not link.is_idle:
            log.warning("requests were still in flight after %g s", grace_s)
        await door.drain(max(LAST_REPLIES_S, give_up_at - clock()))
        self.phase = Phase.CLOSED
        log.info("closed")
