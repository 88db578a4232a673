"""NVTX ranges bear the timeline's names and change nothing else."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

from headrace.errors import EngineError
from headrace.slots import ranges
from headrace.slots.slot import Slot
from headrace.timeline.overlap import COMPUTE, COPIES
from helpers.core_rig import Rig


class Domain:
    """Stands where a profiler would: nothing else can read ranges back."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def get_event_attributes(self, message: str) -> str:
        return message

    def push_range(self, attributes: str) -> None:
        self.seen.append(attributes)

    def pop_range(self) -> None:
        self.seen.append("end")


@pytest.fixture
def domain(monkeypatch: pytest.MonkeyPatch) -> Iterator[Domain]:
    module = ModuleType("nvtx")
    domain = Domain()
    module.get_domain = lambda name: domain if name == "headrace" else None  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "nvtx", module)
    ranges._domain.cache_clear()
    yield domain
    ranges._domain.cache_clear()


def test_what_a_slot_enqueues_is_named(domain: Domain) -> None:
    """Copy, computation, copy, each in a range of its own; the answer is right."""
    rig = Rig(num_slots=1)
    asked = rig.submit(b"abc")
    rig.run()
    assert asked.is_right
    assert domain.seen == ["h2d", "end", "execute", "end", "d2h", "end"]
    assert set(ranges.NAMES.values()) == {*COPIES, COMPUTE}
    rig.close()


def test_a_range_ends_when_the_call_fails(domain: Domain) -> None:
    """And the error of the call comes out, not another."""
    rig = Rig(num_slots=1)
    rig.device.fail_launch(EngineError("refused"), is_refused=True)
    asked = rig.submit(b"abc")
    rig.run()
    assert [str(error) for error in asked.errors] == ["refused"]
    assert domain.seen == ["h2d", "end", "execute", "end"]
    rig.close()


def test_without_the_package_streams_are_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is wrapped, so nothing is paid."""
    monkeypatch.setitem(sys.modules, "nvtx", None)
    ranges._domain.cache_clear()
    rig = Rig(num_slots=1)
    slot: Slot = rig.slots[0]
    assert not vars(slot._stream).keys() & ranges.NAMES.keys()
    rig.close()
    ranges._domain.cache_clear()


def test_the_real_package_takes_our_calls() -> None:
    """In a process of its own: its library decides once whether somebody listens."""
    script = (
        "from headrace.device.host import HostDevice\n"
        "from headrace.slots.ranges import name_ranges\n"
        "stream = HostDevice().open_stream()\n"
        "name_ranges(stream)\n"
        "assert 'launch' in vars(stream)\n"
        "ran = []\n"
        "stream.launch(lambda: ran.append(1))\n"
        "stream.synchronize()\n"
        "stream.close()\n"
        "assert ran == [1]\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, text=True, timeout=20
    )
    assert done.returncode == 0, done.stderr
