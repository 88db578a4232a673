"""When the loop's driver looks at a batch that waits for company: in time, and at little cost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import ceil
from typing import Any

import pytest

from headrace.engines.batching_spec import BatchingSpec
from headrace.link.local import LocalLink
from headrace.rpc.drive import COARSE_S, LoopDriver
from headrace.scheduling.scheduler import EXPIRE_EVERY_S
from headrace.slots.wait import LONGEST_NAP_S, Wait
from helpers.core_rig import Asked
from helpers.rows_rig import RowsRig
from helpers.virtual_loop import VirtualLoop

LOOK_S = 2e-6  # what a look at the clock takes, so that a busy loop moves on
TIMER_S = 1e-3  # a loop's timers count so much
MAX_TURNS = 200_000


class CoarseLoop(VirtualLoop):
    """Timers fire up to a millisecond late, as those of epoll do."""

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        """Round up to whole milliseconds."""
        return super().call_at(ceil(when / TIMER_S) * TIMER_S, callback, *args, context=context)


class Drive:
    """One slot, and one time for loop, device and sleeps."""

    def __init__(self, wait: Wait, delay_s: float) -> None:
        self.rig = RowsRig(
            BatchingSpec(max_rows=8, max_delay_s=delay_s),
            num_slots=1,
            has_marks=True,
            launch_s=0.004,
        )
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        self.selector = loop.selector
        self.num_naps = 0
        self.driver = LoopDriver(
            LocalLink(self.rig.scheduler),
            loop,
            wait,
            nap_s=30e-6,
            clock=self.clock,
            sleep=self.sleep,
        )

    def clock(self) -> float:
        self.selector.now += LOOK_S
        self.rig.device.run_until(self.selector.now)
        return self.selector.now

    def sleep(self, wanted_s: float) -> None:
        assert wanted_s <= LONGEST_NAP_S
        self.num_naps += 1
        self.selector.now += wanted_s

    def ask(self, payload: bytes) -> Asked:
        self.clock()
        asked = self.rig.ask(payload)
        self.driver.step()
        return asked

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Let the loop turn, and the time go by, until something is so."""
        for _ in range(MAX_TURNS):
            if is_so():
                return
            self.clock()
            await asyncio.sleep(0)
        raise AssertionError("it never is")

    async def until_in_flight(self, count: int) -> float:
        """Wait until so many lanes are in flight; return when the last one was enqueued."""
        in_flight = self.rig.slots[0].in_flight
        await self.until(lambda: len(in_flight) == count)
        return in_flight[-1].enqueued_at


def driven(wait: Wait, delay_s: float) -> tuple[float, int]:
    """Return how late a batch was closed that waited for company, and the naps that it took."""

    async def main() -> tuple[float, int]:
        drive = Drive(wait, delay_s)
        began_at = drive.clock()
        drive.ask(b"ab")
        enqueued_at = await drive.until_in_flight(1)
        drive.rig.run()
        drive.rig.close()
        return enqueued_at - began_at - delay_s, drive.num_naps

    with asyncio.Runner(loop_factory=CoarseLoop) as runner:
        return runner.run(main())


@pytest.mark.parametrize("wait", [Wait.NOTIFY, Wait.PREDICT])
@pytest.mark.parametrize("delay_s", [100e-6, 750e-6, 2.2e-3, 10.3e-3, 0.1])
def test_a_delay_is_as_long_as_it_says(wait: Wait, delay_s: float) -> None:
    """Late by a few turns of the loop, though its timers count milliseconds."""
    late_s, num_naps = driven(wait, delay_s)
    assert 0 <= late_s < 50 * LOOK_S
    num_looks = 1 + delay_s / EXPIRE_EVERY_S
    assert num_naps <= num_looks * (COARSE_S / LONGEST_NAP_S + 1)


def test_a_batch_is_closed_shortly_before_its_slot_comes_free() -> None:
    """While the slot computes, on a device that does not tell when it is done."""

    async def main() -> None:
        drive = Drive(Wait.PREDICT, 0.0)
        for _ in range(30):  # what a batch takes has to be known
            drive.ask(b"a")
            await drive.until(lambda: drive.rig.scheduler.is_idle)
        drive.ask(b"a")
        began_at = await drive.until_in_flight(1)
        for payload in (b"b", b"c"):
            drive.ask(payload)
        assert len(drive.rig.slots[0].in_flight) == 1  # it stays open: others may come
        late_at = await drive.until_in_flight(2)
        ends_at = began_at + 0.004
        assert ends_at - 1e-3 < late_at < ends_at
        assert drive.rig.slots[0].in_flight[-1].batch is not None
        assert drive.rig.slots[0].in_flight[-1].batch.rows == 2
        drive.rig.run()
        drive.rig.close()

    with asyncio.Runner(loop_factory=CoarseLoop) as runner:
        runner.run(main())
