"""The exact timer on real event loops."""

from __future__ import annotations

import asyncio
import time
from functools import partial

import pytest
import uvloop

from headrace_client.bench.alarm import Alarm, LoopTimer, exact_alarm

LOOPS = [asyncio.SelectorEventLoop, uvloop.new_event_loop]
KINDS = [exact_alarm, partial(LoopTimer, clock=time.monotonic)]


@pytest.mark.parametrize("make_loop", LOOPS)
@pytest.mark.parametrize("kind", KINDS, ids=["exact", "loop"])
def test_it_rings_at_its_time(make_loop: object, kind: object) -> None:
    """Never before, once for each order, at once for what is past, and never after it is closed."""
    rung: list[float] = []

    async def run() -> None:
        loop = asyncio.get_running_loop()
        has_rung = asyncio.Event()

        def ring() -> None:
            rung.append(time.monotonic())
            has_rung.set()

        alarm: Alarm = kind(loop, ring)  # type: ignore[operator]
        alarm.set(time.monotonic() + 3600)
        at_s = time.monotonic() + 0.002
        alarm.set(at_s)
        await has_rung.wait()
        # The loops' own timers may round down within a millisecond.
        assert rung[0] >= at_s - (0 if kind is exact_alarm else 0.001)
        has_rung.clear()
        alarm.set(at_s - 5)
        await has_rung.wait()
        assert len(rung) == 2
        alarm.set(time.monotonic())
        alarm.close()
        alarm.close()
        await asyncio.sleep(0.01)

    with asyncio.Runner(loop_factory=make_loop) as runner:  # type: ignore[arg-type]
        runner.run(run())
    assert len(rung) == 2
