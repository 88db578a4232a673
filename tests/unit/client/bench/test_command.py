"""The command against a small server that keeps what it was sent."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme

from headrace_client.bench.conduct import Interrupts
from headrace_client.bench.machine import busy_share, core_times, num_cores
from headrace_client.cli import main
from headrace_client.message import encode_request
from helpers.echo_server import EchoServer, Failure, echo_server

Output = pytest.CaptureFixture[str]
LOAD = ["--warm-up", "0", "--quiet", "--json"]
TENSORS = ["-i", "s=[]", "-i", "b=[]"]  # the others of the server's model


@pytest.fixture
def echo() -> Iterator[EchoServer]:
    with echo_server() as server:
        yield server


def bench(echo: EchoServer, capsys: Output, *arguments: str) -> Any:
    """Runs the command, which must succeed; its only level."""
    assert main(["bench", "-u", echo.url, *LOAD, *arguments]) == 0
    (level,) = json.loads(capsys.readouterr().out)["levels"]
    return level


def test_what_travels(echo: EchoServer, capsys: Output) -> None:
    """Sources by stream_id, parameters by type, headers: as asked, on every request."""
    level = bench(
        echo,
        capsys,
        *("echo", "-n", "12", "-c", "3", "--sources", "3", "-b", "2", *TENSORS),
        *("--parameter", "priority=2", "--parameter", "tag=a b", "-H", "x-owner: me"),
        *("-H", f"x-raw-bin:{base64.b64encode(bytes(4)).decode()}"),
    )
    first, *requests = echo.requests  # the first is tried before the workers start
    assert len(requests) == 12
    sources = [request.parameters["stream_id"].int64_param for request in requests]
    assert sorted(sources) == [0] * 4 + [1] * 4 + [2] * 4
    assert {request.parameters["priority"].uint64_param for request in requests} == {2}
    assert {request.parameters["tag"].string_param for request in requests} == {"a b"}
    assert list(first.inputs[0].shape) == [2, 2]
    assert all(call["x-owner"] == "me" for call in echo.metadata)
    assert "x-raw-bin" in echo.metadata[-1]
    assert level["seen"]["num_ok"] == 12
    assert [each["num_due"] for each in level["seen"]["sources"]["each"]] == [4, 4, 4]


def test_a_message_as_it_is(echo: EchoServer, capsys: Output, tmp_path: Path) -> None:
    """A serialized request needs no metadata: for servers that have none."""
    echo.failures["ModelMetadata"] = Failure(grpc.StatusCode.UNIMPLEMENTED, "none", times=9)
    echo.failures["ServerMetadata"] = Failure(grpc.StatusCode.UNIMPLEMENTED, "none", times=9)
    echo.failures["ModelStatistics"] = Failure(grpc.StatusCode.UNIMPLEMENTED, "none", times=9)
    path = tmp_path / "request"
    path.write_bytes(encode_request("echo", {"x": [[1.0, 2.0]]}))
    level = bench(echo, capsys, "--message", str(path), "-n", "5")
    assert [request.model_name for request in echo.requests] == ["echo"] * 6
    assert (level["server"], level["server_text"]) == (None, "UNIMPLEMENTED: none")
    assert level["seen"]["num_ok"] == 5


def test_over_tls(tmp_path: Path, capsys: Output) -> None:
    """The workers trust whom the command was told to trust."""
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost")
    root = tmp_path / "root.pem"
    authority.cert_pem.write_to_path(root)
    pair = (certificate.private_key_pem.bytes(), certificate.cert_chain_pems[0].bytes())
    with echo_server("localhost:0", grpc.ssl_server_credentials([pair])) as echo:
        level = bench(echo, capsys, "echo", "-n", "4", *TENSORS, "--root-cert", str(root))
    assert level["seen"]["num_ok"] == 4


def test_a_stall_of_a_real_server(echo: EchoServer, capsys: Output) -> None:
    """Requests that were due while the server held one are charged for it, though sent later."""

    def stall(request: object) -> bytes:
        # The first waits for twenty others, which come though it has no answer yet.
        if len(echo.requests) == 2:
            echo.held.wait(15)
        elif len(echo.requests) > 21:
            echo.held.set()
        return b""

    echo.reply = stall
    level = bench(echo, capsys, "echo", "-r", "100", "-n", "40", *TENSORS)
    seen = level["seen"]
    assert seen["num_ok"] == 40
    assert seen["latency"]["max_ms"] >= 190, "twenty arrivals at 100/s went by meanwhile"


def test_the_last_error_is_not_the_only_one(echo: EchoServer, capsys: Output) -> None:
    """One refusal among answers is counted, and the run goes on."""
    echo.failures["ModelInfer"] = Failure(grpc.StatusCode.UNAVAILABLE, "try 17", times=3)
    level = bench(echo, capsys, "echo", "-n", "10", *TENSORS)
    # One of the three met the request that is tried first.
    assert level["seen"]["codes"] == {"OK": 8, "UNAVAILABLE": 2}
    assert level["seen"]["failures"] == [{"code": "UNAVAILABLE", "text": "try …", "count": 2}]


@pytest.mark.parametrize(
    "arguments",
    [
        ["bench", "-u", "127.0.0.1:1"],
        ["bench", "m", "-c", "1", "-r", "1"],
        ["bench", "m", "-H", "novalue"],
        ["bench", "m", "-H", "x-bin:%%"],
        ["bench", "--message", "absent"],
    ],
)
def test_bad_usage(arguments: list[str], capsys: Output) -> None:
    """Exits with 2 and says what is expected."""
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage: headrace-client bench" in capsys.readouterr().err


def test_help(capsys: Output) -> None:
    """Names users of other load generators find their flags, and examples."""
    with pytest.raises(SystemExit) as caught:
        main(["bench", "--help"])
    assert caught.value.code == 0
    text = capsys.readouterr().out
    flags = set(re.findall(r"--?[a-zA-Z][a-z-]*", text))
    assert {"-m", "-u", "-b", "-c", "-n", "-r", "-x", "-H"} <= flags
    assert {"--concurrency-range", "--request-rate-range", "--request-count", "--rps"} <= flags
    assert "examples:" in text


def test_files_that_cannot_be_written(echo: EchoServer, capsys: Output, tmp_path: Path) -> None:
    """A folder that is not there is told before the run; what fails after it costs no report."""
    with pytest.raises(SystemExit) as caught:
        main(["bench", "m", "--html", str(tmp_path / "absent" / "report.html")])
    assert caught.value.code == 2
    assert not echo.requests
    capsys.readouterr()
    arguments = ["echo", "-n", "2", *TENSORS, "--html", str(tmp_path)]
    assert main(["bench", "-u", echo.url, *LOAD, *arguments]) == 1
    printed = capsys.readouterr()
    assert json.loads(printed.out)["levels"][0]["seen"]["num_ok"] == 2
    assert f"cannot write {tmp_path}" in printed.err


def test_the_second_interrupt_is_one() -> None:
    """The first is counted, for a report; the second ends the program; then all is as before."""
    before = signal.getsignal(signal.SIGINT)
    interrupts = Interrupts()
    with interrupts.caught():
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupts.count == 1
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_the_machine() -> None:
    """Busy time grows within all time; without figures nobody guesses."""
    before = core_times()
    sum(range(200_000))
    after = core_times()
    assert num_cores() >= 1
    assert busy_share(None, after) is None
    assert busy_share(before, before) is None
    if before is not None and after is not None and after.total > before.total:
        share = busy_share(before, after)
        assert share is not None
        assert 0 <= share <= 1
