"""Requests from several threads while models are loaded, reloaded and unloaded under them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest

from helpers.control_rig import Call, ControlRig, added_by

NUM_SWAPS = 40
ASKED_BEFORE_A_SWAP = 10
MAX_OPEN = 20
PAUSE_S = 0.0005  # so that nobody spins while there is nothing to do
WAIT_S = 20.0
FINISH_S = 5.0


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[ControlRig]:
    rig = ControlRig(tmp_path)
    yield rig
    rig.close()


class Callers:
    """Threads that ask, and a thread that steps, as transports do."""

    def __init__(self, rig: ControlRig, num_threads: int = 3) -> None:
        self.rig = rig
        self.is_over = threading.Event()
        self.calls: list[list[Call]] = [[] for _ in range(num_threads)]
        self.threads = [
            threading.Thread(target=self._ask, args=(calls,), daemon=True) for calls in self.calls
        ]
        self.threads.append(threading.Thread(target=self._step, daemon=True))

    def __enter__(self) -> Self:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.is_over.set()
        for thread in self.threads:
            thread.join(WAIT_S)
            assert not thread.is_alive()
        self._finish()

    @property
    def num_calls(self) -> int:
        """How many were begun."""
        return sum(map(len, self.calls))

    def wait_for(self, num_calls: int) -> None:
        """Wait until so many more were begun."""
        until = self.num_calls + num_calls
        while self.num_calls < until:
            self.is_over.wait(PAUSE_S)

    def ends(self) -> list[tuple[float | str, str]]:
        """How each ended, once."""
        calls = [call for calls in self.calls for call in calls]
        assert all(len(call.replies) + len(call.statuses) == 1 for call in calls)
        return [added_by(call) for call in calls]

    def _ask(self, calls: list[Call]) -> None:
        while not self.is_over.is_set():
            num_open = sum(not (call.replies or call.statuses) for call in calls[-MAX_OPEN:])
            if num_open < MAX_OPEN:
                calls.append(self.rig.begin("m"))
            if num_open == MAX_OPEN or calls[-1].statuses:
                self.is_over.wait(PAUSE_S)

    def _finish(self) -> None:
        """Step until all are answered: a model that was slow in its trial has its own threads."""
        give_up_at = time.monotonic() + FINISH_S
        calls = [call for calls in self.calls for call in calls]
        while not all(call.replies or call.statuses for call in calls):
            self.rig.step()
            if time.monotonic() > give_up_at:
                return  # `ends` says what is missing
            time.sleep(PAUSE_S)

    def _step(self) -> None:
        while not self.is_over.wait(PAUSE_S):
            self.rig.step()


def test_no_request_is_lost_while_versions_are_swapped(rig: ControlRig) -> None:
    """Each is answered once, by the version that it names, and by none that is closed."""
    rig.put("m", 1, 1)
    rig.load("m")
    with Callers(rig) as callers:
        for number in range(2, NUM_SWAPS + 2):
            callers.wait_for(ASKED_BEFORE_A_SWAP)
            rig.put("m", number, number)
            rig.load("m")
    ends = callers.ends()
    assert [end for end in ends if end[0] != float(end[1] or 0)] == []
    assert {int(version) for _, version in ends} >= {1, NUM_SWAPS + 1}


def test_an_unload_ends_with_answers_and_then_with_its_own_error(rig: ControlRig) -> None:
    """Never with another, and a request that was taken in is answered."""
    rig.put("m", 1, 1)
    with Callers(rig) as callers:
        for _ in range(NUM_SWAPS // 2):
            rig.load("m")
            callers.wait_for(ASKED_BEFORE_A_SWAP)
            rig.unload("m")
            callers.wait_for(ASKED_BEFORE_A_SWAP)
    allowed = ("is not found", "has no available versions", "is not at ready state")
    wrong = [
        end
        for end, _ in callers.ends()
        if end != 1 and not any(text in str(end) for text in allowed)
    ]
    assert wrong == []


def test_loads_unloads_and_looks_from_many_threads(rig: ControlRig) -> None:
    """They take turns, and what is asked for last is what is served."""
    rig.put("m", 1, 1)
    rig.put("n", 1, 2)
    rig.load("m")

    def change(name: str) -> None:
        for _ in range(5):
            rig.load(name)
            rig.run(rig.control.unload(name))
            rig.run(rig.control.run(rig.poll.look))

    with Callers(rig, num_threads=1):
        threads = [threading.Thread(target=change, args=(name,)) for name in ("m", "n", "m")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_S)
            assert not thread.is_alive()
    rig.load("m")
    rig.unload("n")
    assert rig.ask("m") == 1
    assert "has no available versions" in str(rig.ask("n"))
