"""A server that records: what it wrote is whole, true, and ends when it is told to."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from click.testing import CliRunner

from headrace.cli import main
from headrace.timeline.trace import read_trace
from helpers.rpc_client import RpcClient, slow_message, told
from helpers.server import Server, serving
from helpers.trace_check import check_trace, requests_of

OK = "StatusCode.OK"


def read(path: Path) -> dict[str, Any]:
    """Read a trace as it was at one moment: twice the same, for a write beside may be seen half."""
    text, before = path.read_bytes(), None
    while text != before:
        text, before = path.read_bytes(), text
    trace: dict[str, Any] = json.loads(text)
    return trace


def ask(server: Server, count: int) -> None:
    """So many requests, all at once, all answered."""
    with RpcClient(server.address) as client:
        calls = [client.start(slow_message(1, [float(n)])) for n in range(count)]
        assert {str(told(call)[0]) for call in calls} == {OK}


def wait_for_log(server: Server, text: str, timeout_s: float = 15) -> None:
    give_up_at = monotonic() + timeout_s
    while text not in server.output():
        assert monotonic() < give_up_at, f"{text!r} is not in\n{server.output()}"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return tmp_path / "trace.json"


@pytest.fixture
def recording(small_repository: Path, transport: str, trace: Path) -> Iterator[Server]:
    """A server that records every request."""
    args = ("--model-repository", small_repository, "--transport", transport)
    with serving(*args, "--timeline", trace, "--timeline-rate", "1") as server:
        yield server


def test_every_request_is_in_the_trace(small_repository: Path, transport: str, trace: Path) -> None:
    """After SIGTERM the file is whole: all requests, each stage in its place, all tracks named."""
    args = ("--model-repository", small_repository, "--transport", transport)
    with serving(*args, "--timeline", trace, "--timeline-rate", "1") as server:
        ask(server, 20)
    written = read(trace)
    check_trace(written["traceEvents"])
    requests = requests_of(written["traceEvents"])
    assert len(requests) == 20
    stages = ["request", "receive", "stage", "queue", "execute", "reply"]
    assert all(list(each) == stages for each in requests.values())
    names = {each["args"]["name"] for each in written["traceEvents"] if each["ph"] == "M"}
    assert "slow version 1" in names
    assert "slot 0 lane 0" in names
    assert written["otherData"]["device_times_off_by_at_most_us"] == 0
    assert read_trace(trace).num_requests == 20


def test_a_sample_is_every_nth(small_repository: Path, transport: str, trace: Path) -> None:
    """Of eleven requests the first and the sixth and the eleventh."""
    args = ("--model-repository", small_repository, "--transport", transport)
    with serving(*args, "--timeline", trace, "--timeline-rate", "5") as server:
        ask(server, 11)
    assert len(requests_of(read(trace)["traceEvents"])) == 3


def test_the_file_is_whole_while_the_server_runs(recording: Server, trace: Path) -> None:
    """Whoever reads it meanwhile, or after a kill, finds JSON."""
    assert read(trace)["traceEvents"] == []
    ask(recording, 3)
    give_up_at = monotonic() + 15
    while len(requests_of(read(trace)["traceEvents"])) < 3:
        assert monotonic() < give_up_at


def test_the_signal_ends_a_recording_and_begins_the_next(recording: Server, trace: Path) -> None:
    """Requests between two recordings are in neither; the second has a file of its own."""
    ask(recording, 2)
    recording.process.send_signal(signal.SIGUSR2)
    wait_for_log(recording, "2 requests in")
    ask(recording, 3)
    recording.process.send_signal(signal.SIGUSR2)
    wait_for_log(recording, "trace-2.json")
    ask(recording, 4)
    recording.process.send_signal(signal.SIGUSR2)
    wait_for_log(recording, "4 requests in")
    counts = [
        len(requests_of(read(each)["traceEvents"]))
        for each in (trace, trace.with_name("trace-2.json"))
    ]
    assert counts == [2, 4]


def test_it_can_wait_for_the_signal(small_repository: Path, trace: Path) -> None:
    """With --timeline-at-start=false nothing is written before."""
    args = ("--model-repository", small_repository, "--timeline-at-start=false")
    with serving(*args, "--timeline", trace, "--timeline-rate", "1") as server:
        ask(server, 2)
        assert not trace.exists()
        server.process.send_signal(signal.SIGUSR2)
        wait_for_log(server, "recording into")
        ask(server, 3)
    assert len(requests_of(read(trace)["traceEvents"])) == 3


def test_without_a_file_the_signal_is_only_told(small_repository: Path) -> None:
    """It neither ends the server nor writes anything."""
    with serving("--model-repository", small_repository) as server:
        server.process.send_signal(signal.SIGUSR2)
        wait_for_log(server, "the server has no --timeline FILE")
        ask(server, 1)


def test_a_full_file_ends_the_recording(small_repository: Path, trace: Path) -> None:
    """The server goes on; the file is whole and not much larger than it may be."""
    args = ("--model-repository", small_repository, "--timeline-max-bytes", "4096")
    with serving(*args, "--timeline", trace, "--timeline-rate", "1") as server:
        ask(server, 20)
        wait_for_log(server, "the file is full")
        ask(server, 5)
    assert 1 <= len(requests_of(read(trace)["traceEvents"])) < 20
    assert trace.stat().st_size < 8192


def test_the_command_sums_a_trace_up(recording: Server, trace: Path) -> None:
    """As a table and as JSON; a CPU has no copies to hide."""
    ask(recording, 5)
    recording.process.send_signal(signal.SIGUSR2)
    wait_for_log(recording, "5 requests in")
    table = CliRunner().invoke(main, ["timeline", str(trace)])
    assert table.exit_code == 0, table.output
    assert "5 over" in table.output
    assert "no copies" in table.output
    told = CliRunner().invoke(main, ["timeline", "--json", str(trace)])
    summary = json.loads(told.output)
    assert summary["num_requests"] == 5
    assert summary["hidden_copy_share"] is None
    assert summary["compute_s"] > 0


def test_a_file_that_is_no_trace_is_refused(tmp_path: Path) -> None:
    """Whatever it holds, the command says so and does not fail otherwise."""
    path = tmp_path / "other.json"
    for text in ("", "[]", "{}", '{"traceEvents": 3, "otherData": {"sampled": ""}}', '{"traceEv'):
        path.write_text(text)
        result = CliRunner().invoke(main, ["timeline", str(path)])
        assert result.exit_code == 1, text
        assert "is not a trace that headrace wrote" in result.output
