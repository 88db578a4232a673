"""The ladder and the timeline on a real GPU, with a kernel of known arithmetic."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.ladder.climb import climb, report_on
from headrace.ladder.report import print_report
from headrace.ladder.rungs import ALL_RUNGS
from headrace.ladder.subject import Subject
from headrace.slots.batch import Placed
from headrace.timeline.recorder import Bounds
from headrace.timeline.switch import TimelineSwitch
from headrace.timeline.trace import read_trace
from helpers.ladder_schema import check_report
from helpers.trace_check import check_trace, requests_of

if TYPE_CHECKING:
    from helpers.cuda_core_rig import CudaRig

pytestmark = pytest.mark.gpu

SIZE = 1 << 20  # bytes in, and as many out


@pytest.fixture
def core(needs_gpu: None) -> Iterator[CudaRig]:
    """Four slots on GPU 0."""
    from helpers.cuda_core_rig import CudaRig

    core = CudaRig()
    yield core
    core.run()
    core.close()


def test_every_rung_is_measured(core: CudaRig) -> None:
    """Streams and graphs; copies and computation are seen, and each rung names its limit."""
    from helpers.cuda_core_rig import CudaAddOne

    subject = Subject(core.device, CudaAddOne(), shapes={"x": (SIZE,)})
    try:
        results = climb(subject, ALL_RUNGS, seconds_s=0.15, clock=time.monotonic)
        report = report_on(
            subject, results, model="add_one", platform=subject.engine.platform, seconds_s=0.15
        )
    finally:
        subject.close()
    print_report(report, sys.stdout)
    told: dict[str, Any] = json.loads(json.dumps(report.as_dict()))
    check_report(told)
    rungs = {rung["name"]: rung["figures"] for rung in told["rungs"]}
    assert list(rungs)[:7] == [
        *("synchronous", "asynchronous", "double buffer"),
        *("2 streams", "4 streams", "8 streams", "16 streams"),
    ]
    assert {f"{name} + graphs" for name in list(rungs)[:7]} - rungs.keys() == {
        "asynchronous + graphs"
    }
    assert all(rungs.values()), told["rungs"]
    for figures in rungs.values():
        assert figures["copy_share"] > 0
        assert figures["compute_share"] > 0
    assert rungs["synchronous"]["hidden_copy_share"] == 0
    assert rungs["4 streams"]["hidden_copy_share"] > 0


def test_a_timeline_shows_each_lane(core: CudaRig, tmp_path: Path) -> None:
    """Copies and computation of every request lie inside what the host saw of it."""

    class Watched:
        on_replied: Any = None

    watched = Watched()
    path = tmp_path / "trace.json"
    switch = TimelineSwitch(path, Bounds(rate=1), clock=time.monotonic)
    switch.connect(core.device, core.slots, watched)
    switch.start()
    requests = [core.submit(bytes(SIZE)) for _ in range(40)]
    core.run()
    for request in requests:
        timing = request.timing
        assert isinstance(timing, Placed)
        # The anchor is true: what it places lies where the host saw it, but for its accuracy.
        slack_s = 1e-3
        assert timing.started_at - slack_s <= timing.begun_at <= timing.ended_at + slack_s
        watched.on_replied(request, time.monotonic())
    switch.close()
    trace = json.loads(path.read_text("utf-8"))
    accuracy_us = trace["otherData"]["device_times_off_by_at_most_us"]
    assert isfinite(accuracy_us)
    print(f"device times are off by at most {accuracy_us:.1f} us")
    check_trace(trace["traceEvents"])
    stages = ["request", "receive", "stage", "queue", "h2d", "execute", "d2h", "reply"]
    found = requests_of(trace["traceEvents"])
    assert len(found) == 40
    assert all(list(each) == stages for each in found.values())
    summary = read_trace(path)
    assert summary.num_lanes == 8
    assert summary.work.copy_s > 0
    print(f"{summary.work.hidden_share:.0%} of the copies were hidden")
    assert all(slot.anchor is None for slot in core.slots)
