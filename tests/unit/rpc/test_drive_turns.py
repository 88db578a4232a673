"""When the loop's driver steps the core: on arrivals, when woken, for deadlines, and never idly."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from headrace.errors import ExpiredError
from headrace.link.local import LocalLink
from headrace.rpc.drive import LoopDriver
from headrace.scheduling.scheduler import EXPIRE_EVERY_S
from headrace.slots.wait import Wait
from helpers.core_rig import Asked, Rig
from helpers.virtual_loop import VirtualLoop, run_virtually

WORK_S = 0.2  # what each launch takes
LOOK_S = 20e-6  # what a look at the clock takes, so that a busy loop moves on
NAP_S = 0.001


class CountingLink(LocalLink):
    """Counts its steps."""

    num_steps = 0

    def step(self, now: float) -> bool:
        self.num_steps += 1
        return super().step(now)


class Drive:
    """A driver on one slot with two lanes; device and loop share one virtual time."""

    def __init__(self, wait: Wait = Wait.NOTIFY) -> None:
        self.rig = Rig(num_slots=1, launch_s=WORK_S, has_marks=True)
        self.link = CountingLink(self.rig.scheduler)
        self.loop = asyncio.get_running_loop()
        assert isinstance(self.loop, VirtualLoop)
        self.selector = self.loop.selector
        self.driver = LoopDriver(
            self.link, self.loop, wait, nap_s=NAP_S, clock=self.clock, sleep=self.sleep
        )
        if wait is Wait.NOTIFY:
            self._notify()

    def clock(self) -> float:
        self.selector.now += LOOK_S
        if self.selector.now > self.rig.device.now:
            self.rig.device.run_until(self.selector.now)
        return self.selector.now

    def sleep(self, wanted_s: float) -> None:
        self.selector.now += wanted_s

    def submit(self, deadline_s: float | None = None) -> Asked:
        deadline = None if deadline_s is None else self.clock() + deadline_s
        self.clock()
        asked = self.rig.submit(b"abc", deadline=deadline)
        self.driver.step()
        return asked

    async def ended(self, asked: Asked) -> float:
        """Wait until the request has ended; the virtual time of it."""
        while not asked.num_ends:  # noqa: ASYNC110 -- virtual time
            await asyncio.sleep(0.002)
        return self.selector.now

    def _notify(self) -> None:
        """Tell of progress as the host device does: whenever an event may have become done."""
        if self.rig.device.next_due_s() <= self.selector.now:
            self.clock()
            self.driver.wake_threadsafe()
        self.loop.call_later(0.004, self._notify)


def virtually(body: Callable[[], Coroutine[Any, Any, None]]) -> None:
    run_virtually(body())


def test_a_completion_that_is_told_needs_no_sweeps_before_it() -> None:
    """One step for the arrival, one or two when the device has news; none between."""

    async def body() -> None:
        drive = Drive()
        asked = drive.submit()
        assert await drive.ended(asked) == pytest.approx(WORK_S, abs=0.02)
        assert asked.is_right
        assert drive.link.num_steps <= 5

    virtually(body)


def test_nothing_is_done_when_nothing_is_to_do() -> None:
    """An idle core costs no step, however long it is idle."""

    async def body() -> None:
        drive = Drive()
        await drive.ended(drive.submit())
        await asyncio.sleep(1)
        num_steps = drive.link.num_steps
        await asyncio.sleep(200)
        assert drive.link.num_steps <= num_steps + 1  # the watch for a stall, once

    virtually(body)


def test_many_wakes_make_one_step() -> None:
    """Launchers of many slots may finish before the loop gets its turn."""

    async def body() -> None:
        drive = Drive()
        before = drive.link.num_steps
        for _ in range(100):
            drive.driver.wake_threadsafe()
        await asyncio.sleep(0)
        assert drive.link.num_steps == before + 1

    virtually(body)


def test_a_wake_during_a_step_is_not_lost() -> None:
    """What ends while the core steps is seen by another step."""

    async def body() -> None:
        drive = Drive()
        asked = drive.rig.request(b"abc")
        asked.request.on_end = lambda *_: drive.driver.wake_threadsafe()
        drive.rig.scheduler.submit(asked.request, drive.clock())
        drive.driver.step()
        await asyncio.sleep(WORK_S)  # until it ends, and wakes from within the step
        num_steps = drive.link.num_steps
        await asyncio.sleep(0.1)
        assert drive.link.num_steps > num_steps

    virtually(body)


@pytest.mark.parametrize("wait", list(Wait))
def test_a_queued_deadline_is_noticed_while_the_device_works(wait: Wait) -> None:
    """However the driver waits: within a moment of the deadline, far before the work is done."""

    async def body() -> None:
        drive = Drive(wait)
        for _ in range(4):  # so that the duration is known
            await drive.ended(drive.submit())
        began_at = drive.selector.now
        busy = [drive.submit() for _ in range(2)]
        late = drive.submit(deadline_s=0.03)
        assert await drive.ended(late) - began_at < 0.03 + EXPIRE_EVERY_S + 0.01
        assert isinstance(late.errors[0], ExpiredError)
        for asked in busy:
            await drive.ended(asked)
            assert asked.is_right

    virtually(body)


class MoreToDo:
    """A link that asks for another step at once, some times."""

    is_idle = is_at_rest = True
    is_polling = False
    due_at = 0.0

    def __init__(self, times: int) -> None:
        self.left = times
        self.turns_between: list[int] = []
        self.num_turns = 0

    def step(self, now: float) -> bool:
        self.turns_between.append(self.num_turns)
        self.left -= 1
        return self.left > 0


def test_more_work_gets_more_steps_and_the_loop_its_turns() -> None:
    """A core that is not through is stepped again, and the front door runs in between."""

    async def body() -> None:
        link: Any = MoreToDo(5)
        loop = asyncio.get_running_loop()
        driver = LoopDriver(link, loop, Wait.NOTIFY, nap_s=NAP_S, clock=loop.time)
        driver.step()
        while link.left:
            link.num_turns += 1
            await asyncio.sleep(0)
        assert len(link.turns_between) == 5
        assert link.turns_between == sorted(set(link.turns_between))

    virtually(body)
