"""A recording ends at its bounds, drops what is too much, and never holds the server up."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from headrace.scheduling.request import Request
from headrace.timeline import recorder as recorder_module
from headrace.timeline.recorder import Bounds, Recorder
from headrace.timeline.switch import TimelineSwitch
from helpers.core_rig import Rig
from helpers.trace_check import check_trace, requests_of

WAIT_S = 15


@dataclass
class Watched:
    """What the front door is to the switch."""

    on_replied: Callable[[Request, float], None] | None = None


@dataclass
class Recording:
    """A core on the virtual CPU under a switch."""

    path: Path
    bounds: Bounds
    rig: Rig = field(default_factory=lambda: Rig(is_unified=True))
    watched: Watched = field(default_factory=Watched)

    def __post_init__(self) -> None:
        self.switch = TimelineSwitch(self.path, self.bounds, clock=self.rig.clock)
        self.switch.connect(self.rig.device, self.rig.slots, self.watched)

    def serve(self, count: int) -> None:
        """Run requests, and tell whoever watches of each."""
        for _ in range(count):
            request = self.rig.submit(b"abc").request
            self.rig.run()
            if self.watched.on_replied is not None:
                self.watched.on_replied(request, self.rig.clock())

    def close(self) -> None:
        self.switch.close()
        self.rig.close()

    def num_requests(self, path: Path | None = None) -> int:
        events: list[dict[str, Any]] = json.loads((path or self.path).read_text())["traceEvents"]
        check_trace(events)
        return len(requests_of(events))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trace.json"


@pytest.mark.parametrize(("rate", "expected"), [(1, 7), (3, 3), (7, 1), (100, 1)])
def test_the_sample(path: Path, rate: int, expected: int) -> None:
    """Every so many-th, the first included; the file is complete when the recording has ended."""
    recording = Recording(path, Bounds(rate=rate))
    recording.switch.start()
    recording.serve(7)
    recording.switch.stop()
    assert recording.num_requests() == expected
    assert recording.watched.on_replied is None
    assert all(slot.anchor is None for slot in recording.rig.slots)
    recording.close()


def test_requests_from_before_are_passed_over(path: Path) -> None:
    """What was received earlier has no place in the trace."""
    recording = Recording(path, Bounds(rate=1))
    early = recording.rig.submit(b"abc").request
    recording.rig.device.run_until(1.0)
    recording.switch.start()
    recording.rig.run()
    assert recording.watched.on_replied is not None
    recording.watched.on_replied(early, recording.rig.clock())
    recording.serve(2)
    recording.close()
    assert recording.num_requests() == 2


def test_time_ends_a_recording(path: Path) -> None:
    """Its watcher is taken away, and the next recording has its own file."""
    recording = Recording(path, Bounds(rate=1, max_s=5.0))
    recording.switch.start()
    recording.serve(1)
    recording.rig.device.run_until(6.0)
    give_up_at = monotonic() + WAIT_S
    while recording.switch.is_recording:
        assert monotonic() < give_up_at
    recording.switch.toggle()
    recording.serve(2)
    recording.switch.toggle()
    recording.close()
    assert recording.num_requests() == 1
    assert recording.num_requests(path.with_name("trace-2.json")) == 2


def test_what_the_writer_cannot_keep_up_with_is_dropped(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queue has a bound; what is over it is counted, not kept."""
    monkeypatch.setattr(recorder_module, "MAX_PENDING", 3)
    monkeypatch.setattr(recorder_module, "TURN_S", 3600.0)  # the writer sleeps until the end
    rig = Rig(is_unified=True)
    recorder = Recorder(path, Bounds(rate=1), clock=rig.clock, accuracy_s=0.0, on_end=lambda: None)
    recording = Recording(path, Bounds(rate=1), rig, Watched(recorder.note))
    anchored = TimelineSwitch(path.with_name("other.json"), Bounds(), clock=rig.clock)
    anchored.connect(rig.device, rig.slots, Watched())
    anchored.start()
    recording.serve(5)
    recorder.close()
    anchored.close()
    assert recorder.num_dropped == 2
    assert recording.num_requests() == 3
    recording.close()


def test_a_place_that_cannot_be_written_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged, nothing is recorded, and requests are served."""
    recording = Recording(tmp_path / "missing" / "trace.json", Bounds())
    recording.switch.start()
    assert not recording.switch.is_recording
    assert "no timeline is recorded" in caplog.text
    recording.serve(1)
    recording.close()


def test_the_switch_without_a_server(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Before the server is open and after it is closed it only says so."""
    switch = TimelineSwitch(path, Bounds(), clock=float)
    switch.toggle()
    switch.close()
    switch.toggle()
    assert caplog.text.count("nothing is served yet, or any more") == 2
    assert not path.exists()
    nowhere = TimelineSwitch(None, Bounds(), clock=float)
    nowhere.start()
    nowhere.toggle()
    assert "has no --timeline FILE" in caplog.text


def test_slots_come_and_go_while_a_recording_runs(path: Path) -> None:
    """Those of a model that is loaded later are recorded; those that will be closed are let go."""
    recording = Recording(path, Bounds(rate=1))
    later = Rig(is_unified=True)
    recording.switch.start()
    recording.switch.add(later.slots)
    recording.switch.remove(recording.rig.slots)
    anchors = [slot.anchor is not None for slot in (*later.slots, *recording.rig.slots)]
    assert anchors == [True, True, False, False]
    recording.switch.stop()
    assert all(slot.anchor is None for slot in later.slots)
    recording.switch.add(later.slots)  # known already, and nothing runs
    assert all(slot.anchor is None for slot in later.slots)
    recording.close()
    later.close()
