"""The loop's driver on the virtual device and a virtual loop: when it sweeps, and how it rests."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headrace.link.local import LocalLink
from headrace.rpc.drive import LoopDriver
from headrace.slots.wait import LONGEST_NAP_S, Wait
from helpers.core_rig import Rig
from helpers.virtual_loop import VirtualLoop

NAP_S = 30e-6
TURN_S = 4e-6  # what a turn of the loop takes here
OVERSLEEP_S = 10e-6


class Drive:
    """A driver, and one time for its loop, its device and its sleeps."""

    def __init__(self, wait: Wait, launch_s: float) -> None:
        self.rig = Rig(num_slots=1, has_marks=True, launch_s=launch_s)
        self.loop = asyncio.get_running_loop()
        assert isinstance(self.loop, VirtualLoop)
        self.selector = self.loop.selector
        self.naps: list[float] = []
        self.driver = LoopDriver(
            LocalLink(self.rig.scheduler),
            self.loop,
            wait,
            nap_s=NAP_S,
            clock=self.clock,
            sleep=self.sleep,
        )

    def clock(self) -> float:
        """Every look at the clock costs a little, so that a busy loop moves on."""
        self.selector.now += TURN_S / 4
        self.rig.device.run_until(self.selector.now)
        return self.selector.now

    def sleep(self, wanted_s: float) -> None:
        """Sleep longer than asked for, as systems do."""
        self.naps.append(wanted_s)
        self.selector.now += wanted_s + OVERSLEEP_S

    async def call(self) -> float:
        """Make a request; return how much longer than the device it took."""
        before = self.clock()
        asked = self.rig.request(b"abcd")
        note, ended = asked.request.on_end, asyncio.Event()

        def on_end(*what: Any) -> None:
            note(*what)
            ended.set()

        asked.request.on_end = on_end
        self.rig.scheduler.submit(asked.request, before)
        self.driver.step()
        await ended.wait()
        assert asked.is_right
        timing = asked.request.timing
        assert timing is not None
        return self.clock() - before - timing.h2d_s - timing.execute_s - timing.d2h_s


def drive(wait: Wait, launch_s: float, num_calls: int) -> tuple[list[float], Drive, int]:
    """Make calls one after the other; return each one's delay, and the sweeps of the last ten."""
    kept: list[Drive] = []

    async def main() -> tuple[list[float], int]:
        drive = Drive(wait, launch_s)
        kept.append(drive)
        delays = [await drive.call() for _ in range(num_calls - 10)]
        num_before = drive.rig.poller.num_sweeps
        drive.naps.clear()
        delays += [await drive.call() for _ in range(10)]
        return delays, drive.rig.poller.num_sweeps - num_before

    loop = VirtualLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        delays, num_sweeps = runner.run(main())
    kept[0].rig.close()
    return delays, kept[0], num_sweeps


@pytest.mark.parametrize("launch_s", [300e-6, 1e-3, 5e-3])
def test_prediction_is_nearly_as_quick_as_spinning_at_a_fraction_of_the_sweeps(
    launch_s: float,
) -> None:
    """Once the work is known: late by a few turns of the loop, and rarely awake before."""
    spun, _, num_spun = drive(Wait.SPIN, launch_s, 80)
    predicted, driven, num_predicted = drive(Wait.PREDICT, launch_s, 80)
    assert max(predicted[-10:]) <= max(spun[-10:]) + 5 * TURN_S
    assert num_predicted <= num_spun / 4
    assert max(driven.naps) <= LONGEST_NAP_S


def test_naps_are_as_long_as_told() -> None:
    """Every rest is the nap of the settings."""
    _, driven, num_sweeps = drive(Wait.NAP, 1e-3, 20)
    assert driven.naps
    assert driven.naps == [pytest.approx(NAP_S, abs=TURN_S)] * len(driven.naps)
    assert num_sweeps >= len(driven.naps)


def test_spinning_never_sleeps() -> None:
    """The loop turns, and every turn sweeps."""
    _, driven, num_sweeps = drive(Wait.SPIN, 1e-3, 20)
    assert driven.naps == []
    assert num_sweeps > 10 * 1e-3 / (4 * TURN_S)


def test_a_long_wait_is_the_loops_own() -> None:
    """Work of a tenth of a second is not slept through: requests are received meanwhile."""
    _, driven, _ = drive(Wait.PREDICT, 0.1, 40)
    assert sum(driven.naps) < 0.05


def test_right_after_an_arrival_nothing_is_slept() -> None:
    """Where one request came in, more may be waiting: the loop gets its turn first."""

    async def main() -> None:
        drive = Drive(Wait.NAP, 1e-3)
        asked = drive.rig.submit(b"abcd")
        drive.driver.step()
        await asyncio.sleep(0)
        assert drive.naps == []
        await asyncio.sleep(0)
        assert len(drive.naps) == 1
        for _ in range(1000):
            await asyncio.sleep(0)
        assert asked.is_right
        drive.rig.close()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(main())
