"""The load generator against a running headrace: what it counts is what the server counts."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from headrace_client.cli import main
from helpers import process_tree
from helpers.scrape import Scrape
from helpers.server import NO_DEBUG, Server, ServerPool

pytestmark = pytest.mark.timeout(90)  # every run starts interpreters, on a machine that is busy
COMMAND = Path(sys.executable).with_name("headrace-client")
SUCCESS = "nv_inference_request_success"
Output = pytest.CaptureFixture[str]


@pytest.fixture
def served(servers: ServerPool, load_repository: Path) -> Server:
    """A server with the load models."""
    return servers.get("--model-repository", load_repository, "--transport", "native")


def bench(server: Server, *arguments: str) -> int:
    """Runs the command in this process (its workers have their own)."""
    return main(["bench", "-u", server.address, "--quiet", *arguments])


def report_of(capsys: Output) -> Any:
    """What was printed, as JSON, and its only level."""
    report = json.loads(capsys.readouterr().out)
    (level,) = report["levels"]
    return report, level


def test_closed_loop(served: Server, capsys: Output) -> None:
    """Each request is counted once, here and there, whatever process sent it."""
    arguments = ["mlp", "-c", "6", "-n", "300", "--warm-up", "0", "--processes", "2", "-b", "2"]
    assert bench(served, *arguments, "--json") == 0
    report, level = report_of(capsys)
    assert report["schema"] == "headrace-bench/1"
    assert report["subject"]["server"].startswith("headrace ")
    assert report["subject"]["inputs"] == ["x FP32[2, 64]"]
    seen, server = level["seen"], level["server"]
    assert (seen["num_due"], seen["num_ok"], seen["codes"]) == (300, 300, {"OK": 300})
    assert (server["num_succeeded"], server["num_rows"]) == (300, 600)
    assert level["rows_per_s"] == pytest.approx(2 * seen["throughput_per_s"])
    assert 0 < seen["latency"]["p50_ms"] <= seen["latency"]["p999_ms"] <= seen["latency"]["max_ms"]
    assert server["request_ms"] < seen["latency"]["max_ms"]
    assert len(level["use"]["loop_shares"]) == 2


def test_open_loop(served: Server, capsys: Output) -> None:
    """As many requests as the schedule has, in text that names what matters."""
    arguments = ["mlp", "-r", "200", "--duration", "1", "--warm-up", "0.2", "--deadline-ms", "2000"]
    assert bench(served, *arguments) == 0
    text = capsys.readouterr().out
    assert "open loop, constant at 200/s" in text
    assert re.search(r"requests    (199|200|201)\n", text)
    assert re.search(r"goodput     [\d.,]+/s within 2000 ms", text)
    assert "latency, from when due" in text
    assert "The client was " in text


def test_sources_and_a_flood(served: Server, capsys: Output) -> None:
    """Every source sends at its rate, the flooding one at five times that."""
    load = ["--sources", "4", "--rate-per-source", "20", "--flood", "2:5", "--duration", "1"]
    assert bench(served, "mlp", *load, "--warm-up", "0", "--json") == 0
    _, level = report_of(capsys)
    sources = level["seen"]["sources"]
    due = [each["num_due"] for each in sources["each"]]
    assert due == pytest.approx([20, 20, 100, 20], abs=1)
    assert sources["flooding"]["source"] == "2"
    assert sources["others"]["num_due"] == sum(due) - due[2]
    assert sources["worst"]["source"] in {"0", "1", "3"}


def test_a_sweep(served: Server, capsys: Output) -> None:
    """A level after another, and a table of all."""
    assert bench(served, "mlp", "-c", "1:3", "-n", "20", "--warm-up", "0") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("closed loop")] == [
        f"closed loop, {number} in flight" for number in (1, 2, 3)
    ]
    head, *rows = lines[-4:]
    assert head.split()[:2] == ["load", "req/s"]
    assert [row.split()[0] for row in rows] == ["1", "2", "3"]


def test_reports_in_files(served: Server, tmp_path: Path, capsys: Output) -> None:
    """JSON and a page with charts that asks nothing of anybody."""
    as_json, page = tmp_path / "report.json", tmp_path / "report.html"
    load = ["mlp", "-r", "100,200", "--duration", "0.5", "--warm-up", "0"]
    assert bench(served, *load, "--json-file", str(as_json), "--html", str(page)) == 0
    assert capsys.readouterr().out.startswith("mlp at ")
    assert [level["value"] for level in json.loads(as_json.read_text())["levels"]] == [100, 200]
    text = page.read_text("utf-8")
    assert text.count("<svg") >= 2 + 2 * 4
    assert not re.search(r"<script|<link|<img|src=|href=|url\(|https?:", text)


def test_refusals(slow: Server, capsys: Output) -> None:
    """What an overloaded server refuses is told by code and text; the rest is answered."""
    inputs = ["-i", "x=[1]", "-i", "rounds=[200]"]
    load = ["-c", "8", "--duration", "1", "--warm-up", "0", "--json"]
    assert bench(slow, "slow", *inputs, *load) == 0
    _, level = report_of(capsys)
    seen = level["seen"]
    assert seen["codes"]["OK"] > 0
    assert seen["codes"]["UNAVAILABLE"] == seen["num_failed"] > 0
    (failure,) = seen["failures"]
    assert failure["text"] == "Exceeds maximum queue size: … requests wait for slow"
    assert failure["count"] == seen["num_failed"]
    assert sum(seen["series"]["failures_per_s"]["UNAVAILABLE"]) > 0


def test_every_request_fails(slow: Server, capsys: Output) -> None:
    """A deadline that none can meet: exit code 1, and the report says why."""
    inputs = ["-i", "x=[1]", "-i", "rounds=[2500]", "--deadline-ms", "5"]
    assert bench(slow, "slow", *inputs, "-n", "4", "--warm-up", "0", "--json") == 1
    _, level = report_of(capsys)
    assert level["seen"]["codes"] == {"DEADLINE_EXCEEDED": 4}
    assert level["seen"]["goodput_per_s"] == 0


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["absent"], "NOT_FOUND"),
        (["mlp", "--shape", "x:1x63"], "model has shape [-1, 64] for this input"),
        (["mlp", "-b", "33"], "INVALID_ARGUMENT"),  # one more than the model takes
    ],
)
def test_what_no_request_can_mend(
    served: Server, capsys: Output, arguments: list[str], text: str
) -> None:
    """Is told at once, with exit code 1: ten seconds of the same error teach nothing."""
    assert bench(served, *arguments) == 1
    printed = capsys.readouterr()
    assert text in printed.err
    assert not printed.out


def test_nobody_there(capsys: Output) -> None:
    """Exit code 1, and the reason."""
    assert main(["bench", "m", "-u", "127.0.0.1:1"]) == 1
    assert "UNAVAILABLE" in capsys.readouterr().err


@contextmanager
def running(server: Server, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """The installed command, that runs until it is told to stop, once it has sent something."""
    before = Scrape(server.metrics_address)(SUCCESS)
    process = subprocess.Popen(
        [COMMAND, "bench", "mlp", "-u", server.address, "--duration", "1h", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **NO_DEBUG},
    )
    with process:
        try:
            # Beyond the one request that is tried before the workers start.
            Scrape.when(server.metrics_address, lambda now: now(SUCCESS) >= before + 20, 60)
            yield process
        finally:
            process.kill()


def workers_of(process: subprocess.Popen[str]) -> list[int]:
    """The processes that send."""
    return [pid for pid in process_tree.tree(process.pid) if pid != process.pid]


def test_ctrl_c(served: Server) -> None:
    """Ends the run early, with its report and exit code 0, and leaves no process behind."""
    load = ("-r", "100", "--warm-up", "0", "--json", "--processes", "2")
    with running(served, *load) as process:
        workers = workers_of(process)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert len(workers) == 2
    assert process.returncode == 0, err
    (level,) = json.loads(out)["levels"]
    assert level["was_interrupted"]
    assert level["seen"]["num_ok"] > 0
    assert level["seen"]["measured_s"] < 60
    assert err.startswith("open loop, constant at 100/s …")
    assert not [pid for pid in workers if Path(f"/proc/{pid}").exists()]


def gone(pids: list[int], timeout_s: float = 30.0) -> bool:
    """Whether processes that are not ours end in time."""
    give_up_s = monotonic() + timeout_s
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        if monotonic() > give_up_s:
            return False
    return True


def test_nobody_is_left_behind(served: Server) -> None:
    """Workers end when the process that started them is killed."""
    with running(served, "-r", "100", "--processes", "2") as process:
        workers = workers_of(process)
        process.kill()
        process.communicate(timeout=30)
    assert len(workers) == 2
    assert gone(workers)


def test_a_worker_dies(served: Server) -> None:
    """Is told, with exit code 1: figures without its part would be wrong."""
    with running(served, "-r", "100", "--processes", "2") as process:
        workers = workers_of(process)
        os.kill(workers[0], signal.SIGKILL)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (1, "")
    assert "worker process 0 ended with exit code -9" in err
    assert not [pid for pid in workers if Path(f"/proc/{pid}").exists()]
