"""LogSettings and TraceSetting: what is wrong changes nothing, what is right takes effect."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import HeadraceError, NotFoundError, UnavailableError
from headrace.logging_setup import LogSwitch
from headrace.rpc.log_settings import LogState
from headrace.rpc.settings import SettingsService
from headrace.rpc.status import status_of
from headrace.timeline.control import TimelineControl
from headrace.timeline.recorder import Bounds
from headrace.timeline.switch import TimelineSwitch
from headrace_proto.v1 import inference_pb2 as pb
from helpers.bad_request import Bad
from helpers.bad_settings import log_settings, trace_settings, wrong_settings
from helpers.core_rig import Rig
from helpers.served import catalog_of, served
from helpers.trace_check import check_trace, requests_of

BAD = {bad.name: bad for bad in wrong_settings()}


class Watched:
    """What the front door is to the timeline."""

    on_replied: Any = None


class Service:
    """The settings of a server on the virtual CPU, its log in memory."""

    def __init__(self, path: Path | None = None, *, is_on_at_start: bool = False) -> None:
        self.rig = Rig(is_unified=True)
        self.stream = io.StringIO()
        self.log = LogSwitch(LogState(), self.stream)
        self.log.install()
        self.timeline = TimelineSwitch(path, Bounds(rate=2), clock=self.rig.clock)
        self.watched = Watched()
        self.timeline.connect(self.rig.device, self.rig.slots, self.watched)
        if is_on_at_start:
            self.timeline.start()
        self.service = SettingsService(
            catalog_of(served("x FP32[?,1]", "y FP32[?,1]", name="pair")),
            self.log,
            TimelineControl(self.timeline, is_on_at_start=is_on_at_start),
        )

    def close(self) -> None:
        self.timeline.close()
        self.rig.close()

    def serve(self, count: int) -> None:
        for _ in range(count):
            request = self.rig.submit(b"abc").request
            self.rig.run()
            if self.watched.on_replied is not None:
                self.watched.on_replied(request, self.rig.clock())

    def send(self, bad: Bad) -> None:
        """Send a request, with a right setting beside the wrong one."""
        if bad.method == "LogSettings":
            log_request = pb.LogSettingsRequest.FromString(bad.message)
            if "log_info" not in log_request.settings:
                log_request.settings["log_info"].bool_param = False
            self.service.log_settings(log_request)
        else:
            request = pb.TraceSettingRequest.FromString(bad.message)
            if "trace_rate" not in request.settings and not request.model_name:
                request.settings["trace_rate"].value.append("7")
            asyncio.run(self.service.trace_setting(request))

    def set_log(self, **settings: Any) -> dict[str, Any]:
        reply = self.service.log_settings(
            pb.LogSettingsRequest.FromString(log_settings(**settings))
        )
        return {
            name: getattr(value, value.WhichOneof("parameter_choice") or "")
            for name, value in reply.settings.items()
        }

    def set_trace(self, model: str = "", **settings: list[str]) -> dict[str, list[str]]:
        request = pb.TraceSettingRequest.FromString(trace_settings(model, **settings))
        reply = asyncio.run(self.service.trace_setting(request))
        return {name: list(value.value) for name, value in reply.settings.items()}


@pytest.fixture
def service() -> Iterator[Service]:
    """Without a timeline."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    made = Service()
    yield made
    made.close()
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.getLogger("headrace").setLevel(logging.NOTSET)
    logging.captureWarnings(capture=False)


@pytest.fixture
def traced(tmp_path: Path, service: Service) -> Iterator[Service]:
    """With one that records from the start."""
    del service  # restores the log
    made = Service(tmp_path / "trace.json", is_on_at_start=True)
    yield made
    made.close()


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD.keys())
def test_what_is_wrong_is_refused_and_changes_nothing(service: Service, bad: Bad) -> None:
    """All settings of a request are checked before any takes effect."""
    before = (service.set_log(), service.set_trace())
    with pytest.raises(HeadraceError) as caught:
        service.send(bad)
    status = status_of(caught.value)
    assert (status.code.value[0], bad.text in status.text) == (bad.code, True), status.text
    assert (service.set_log(), service.set_trace()) == before


def test_the_log_changes_at_once(service: Service) -> None:
    """And says what has changed, as long as it can be read."""
    log = logging.getLogger("headrace.rpc")
    log.info("one")
    assert service.set_log(log_info=False, log_verbose_level=0)["log_info"] is False
    log.info("two")
    assert service.set_log(log_info=True, log_verbose_level=1, log_format="json") == {
        "log_file": "",
        "log_info": True,
        "log_warning": True,
        "log_error": True,
        "log_verbose_level": 1,
        "log_format": "json",
    }
    log.debug("three")
    one, change, another, three = service.stream.getvalue().splitlines()
    assert one.endswith("one")
    assert change.endswith("a client changes what is logged: log_info True → False")
    assert "log_verbose_level 0 → 1, log_format default → json" in another
    assert json.loads(three)["message"] == "three"


def test_settings_that_are_as_they_were_are_no_change(service: Service) -> None:
    """Clients send back what they have read."""
    settings = service.set_log()
    assert service.set_log(**settings) == settings
    assert service.stream.getvalue() == ""


def test_without_a_timeline_there_is_nothing_to_switch_on(service: Service) -> None:
    """The settings can be read, and switched off."""
    off = {
        "trace_level": ["OFF"],
        "trace_rate": ["2"],
        "trace_count": ["-1"],
        "log_frequency": ["0"],
        "trace_file": [""],
    }
    assert service.set_trace() == off
    assert service.set_trace(trace_level=["OFF"], log_frequency=["0"]) == off
    assert service.set_trace(trace_level=[], trace_rate=[], trace_count=[]) == off


def test_a_model_has_the_settings_of_all(service: Service) -> None:
    """They can be asked for, and cleared, which they are; an unknown model has none."""
    assert service.set_trace("pair") == service.set_trace()
    assert service.set_trace("pair", trace_rate=[]) == service.set_trace()
    with pytest.raises(NotFoundError):
        service.set_trace("nothing")


def num_requests(path: Path) -> int:
    events = json.loads(path.read_text())["traceEvents"]
    check_trace(events)
    return len(requests_of(events))


def test_a_trace_is_switched_off_and_on(traced: Service, tmp_path: Path) -> None:
    """Each recording has a file of its own, whole when it is off."""
    assert traced.set_trace()["trace_file"] == ["trace.json"]
    traced.serve(4)
    assert traced.set_trace(trace_level=["OFF"])["trace_level"] == ["OFF"]
    assert num_requests(tmp_path / "trace.json") == 2
    traced.serve(4)
    on = traced.set_trace(trace_level=["TIMESTAMPS"], trace_rate=["1"])
    assert (on["trace_level"], on["trace_rate"]) == (["TIMESTAMPS"], ["1"])
    assert on["trace_file"] == ["trace-2.json"]
    traced.serve(3)
    cleared = traced.set_trace(trace_rate=[])
    assert (cleared["trace_rate"], cleared["trace_level"]) == (["2"], ["TIMESTAMPS"])
    assert num_requests(tmp_path / "trace-2.json") == 3
    assert cleared["trace_file"] == ["trace-3.json"]


def test_a_trace_of_so_many_requests(traced: Service, tmp_path: Path) -> None:
    """It ends by itself; the level tells."""
    traced.set_trace(trace_rate=["1"], trace_count=["3"])
    traced.serve(10)
    while traced.set_trace()["trace_level"] != ["OFF"]:
        pass  # the writer ends it
    assert num_requests(tmp_path / "trace-2.json") == 3


def test_a_file_that_cannot_be_written(traced: Service, tmp_path: Path) -> None:
    """The client is told, without the path; the server goes on."""
    traced.set_trace(trace_level=["OFF"])
    (tmp_path / "trace-2.json").mkdir()
    with pytest.raises(UnavailableError, match="no trace can be recorded; the server's log"):
        traced.set_trace(trace_level=["TIMESTAMPS"])
    assert traced.set_trace()["trace_level"] == ["OFF"]
    assert "trace-2.json" in traced.stream.getvalue()
