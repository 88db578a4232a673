"""The end of a server, phase by phase, in virtual time."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from headrace.life import EXIT_CUT_SHORT, EXIT_STOPPED, LAST_REPLIES_S, Life, Phase
from helpers.virtual_loop import VirtualLoop, run_virtually


def now() -> float:
    return asyncio.get_running_loop().time()


@dataclass
class Rig:
    """A life with a link that is busy until a time, and a door; both note what happens when."""

    busy_until: float = 0.0
    notes: list[tuple[float, str]] = field(default_factory=list)
    exits: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.life = Life(self.exits.append)
        self.life.phase = Phase.SERVING

    @property
    def is_idle(self) -> bool:
        return now() >= self.busy_until

    def refuse_new(self) -> None:
        self.note("refuses new")

    async def drain(self, grace_s: float) -> None:
        self.note(f"drains for {grace_s:.1f}")

    def note(self, what: str) -> None:
        state = "serving" if self.life.is_serving() else "not ready"
        self.notes.append((round(now(), 1), f"{what}, {state}"))

    async def end(self, *, lame_duck_s: float = 0.0, grace_s: float = 30.0) -> bool:
        link: Any = self
        return await self.life.end(self, link, lame_duck_s=lame_duck_s, grace_s=grace_s, clock=now)


def test_phases_come_in_order() -> None:
    """Not ready but serving, then refusing, then drained as soon as nothing is in flight."""
    rig = Rig(busy_until=7.0)
    assert run_virtually(rig.end(lame_duck_s=5.0))
    assert rig.notes == [(5.0, "refuses new, not ready"), (7.0, "drains for 28.0, not ready")]
    assert rig.life.phase is Phase.CLOSED


def test_the_lame_duck_still_serves() -> None:
    """It is not ready from the first moment on, and refuses nobody until its time is over."""

    async def main() -> None:
        rig = Rig()
        end = asyncio.create_task(rig.end(lame_duck_s=5.0))
        await asyncio.sleep(4.9)
        assert (rig.life.is_serving(), rig.life.is_stopping()) == (False, False)
        await asyncio.sleep(0.2)
        assert (rig.life.is_serving(), rig.life.is_stopping()) == (False, True)
        await end

    run_virtually(main())


def test_without_work_the_end_is_at_once() -> None:
    """Nobody waits for a grace that nothing needs."""
    rig = Rig()
    assert run_virtually(rig.end())
    assert rig.notes[-1] == (0.0, "drains for 30.0, not ready")


def test_the_grace_is_a_bound() -> None:
    """Work that does not end is given up, replies on their way get a last moment."""
    rig = Rig(busy_until=1e9)
    assert not run_virtually(rig.end(grace_s=2.0))
    assert rig.notes[-1] == (2.0, f"drains for {LAST_REPLIES_S:.1f}, not ready")


def test_the_first_signal_asks_and_the_second_ends() -> None:
    """At once, and not with 0: something may be lost."""
    rig = Rig()
    rig.life.on_signal()
    assert rig.life.stop_asked.is_set()
    assert rig.exits == []
    rig.life.on_signal()
    assert rig.exits == [EXIT_CUT_SHORT]


def test_while_loading_one_signal_is_enough() -> None:
    """A load can take minutes, and there is nothing to finish."""
    rig = Rig()
    rig.life.phase = Phase.LOADING
    rig.life.on_signal()
    assert rig.exits == [EXIT_STOPPED]


@pytest.mark.parametrize(
    ("phase", "is_serving", "is_stopping"),
    [
        (Phase.LOADING, False, False),
        (Phase.SERVING, True, False),
        (Phase.LAME_DUCK, False, False),
        (Phase.DRAINING, False, True),
        (Phase.CLOSED, False, True),
    ],
)
def test_what_each_phase_says(phase: Phase, is_serving: bool, is_stopping: bool) -> None:
    """Of readiness, and of new requests."""
    life = Life()
    life.phase = phase
    assert (life.is_serving(), life.is_stopping()) == (is_serving, is_stopping)


def test_virtual_time_is_told_from_a_deadlock() -> None:
    """An hour takes no time; waiting for what nobody will do is an error, not a hang."""
    loop = VirtualLoop()
    try:
        loop.run_until_complete(asyncio.sleep(3600))
        assert loop.time() == pytest.approx(3600)
        with pytest.raises(AssertionError, match="nothing will ever wake it"):
            loop.run_until_complete(loop.create_future())
    finally:
        loop.close()
