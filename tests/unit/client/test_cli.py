"""The command line against a small real server: what it prints, and its exit codes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import grpc
import ml_dtypes
import numpy as np
import pytest

from headrace_client.cli import main
from helpers.echo_server import EchoServer, Failure, echo_server


@pytest.fixture
def echo(monkeypatch: pytest.MonkeyPatch) -> Iterator[EchoServer]:
    with echo_server() as server:
        monkeypatch.setenv("HEADRACE_URL", server.url)
        yield server


Output = pytest.CaptureFixture[str]


def test_infer_prints_a_table(echo: EchoServer, capsys: Output) -> None:
    """Every output stands in a row: name, datatype, shape and values."""
    assert main(["infer", "echo", "-i", "x=[[1, 2.5]]", "-i", 's=["a", "ö"]']) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["OUTPUT", "DATATYPE", "SHAPE", "VALUES"]
    assert rows[0].split() == ["x", "FP32", "[1,", "2]", "[1.", "2.5]"]
    assert rows[1].split() == ["s", "BYTES", "[2]", "['a'", "'ö']"]
    (request,) = echo.requests
    assert request.raw_input_contents[0] == np.array([1, 2.5], "<f4").tobytes()


def test_infer_prints_json(echo: EchoServer, capsys: Output) -> None:
    """A program reads the whole reply, BF16 as numbers and BYTES as text."""
    arguments = ["-i", "b=[1.5, -2]", "-i", 's=["\\u00e4"]', "--json", "--model-version", "3"]
    assert main(["infer", "echo", *arguments]) == 0
    reply = json.loads(capsys.readouterr().out)
    assert (reply["model"], reply["version"]) == ("echo", "3")
    assert reply["outputs"]["b"] == {"datatype": "BF16", "shape": [2], "data": [1.5, -2.0]}
    assert reply["outputs"]["s"]["data"] == ["ä"]
    assert (
        echo.requests[0].raw_input_contents[0] == np.array([1.5, -2], ml_dtypes.bfloat16).tobytes()
    )


def test_infer_reads_numpy_files(echo: EchoServer, tmp_path: Path, capsys: Output) -> None:
    """An array out of a file becomes the model's datatype where that loses no kind."""
    np.save(tmp_path / "x.npy", np.array([[0.5, 1]]))  # float64, for an input of FP32
    assert main(["infer", "echo", "-i", f"x=@{tmp_path / 'x.npy'}", "-o", "x", "--json"]) == 0
    reply = json.loads(capsys.readouterr().out)
    assert reply["outputs"]["x"] == {"datatype": "FP32", "shape": [1, 2], "data": [[0.5, 1.0]]}
    assert [output.name for output in echo.requests[0].outputs] == ["x"]


def test_long_outputs_are_abridged(echo: EchoServer, capsys: Output) -> None:
    """A table stays readable whatever the tensor's size; one row is one line."""
    assert main(["infer", "echo", "-i", f"x={list(range(5000))}"]) == 0
    row = capsys.readouterr().out.splitlines()[1]
    assert "..." in row
    assert len(row) < 120


@pytest.mark.parametrize(
    ("argument", "text"),
    [
        ("x", "expected NAME=JSON or NAME=@FILE.npy"),
        ("y=1", "model 'echo' has inputs x, s, b"),
        ("x=[1,", "Expecting value"),
        ("x=@absent.npy", "absent.npy"),
        ('x=["a"]', "expected numbers, for FP32"),
    ],
)
def test_wrong_inputs(echo: EchoServer, capsys: Output, argument: str, text: str) -> None:
    """A mistake is told on standard error, with exit code 1, before anything is sent."""
    assert main(["infer", "echo", "-i", argument]) == 1
    printed = capsys.readouterr()
    assert text in printed.err
    assert printed.err.startswith("headrace-client: ")
    assert not printed.out
    assert not echo.requests


def test_numpy_files_with_code(echo: EchoServer, tmp_path: Path, capsys: Output) -> None:
    """A file of pickled objects is never loaded."""
    np.save(tmp_path / "x.npy", np.array([{}], dtype=object), allow_pickle=True)
    assert main(["infer", "echo", "-i", f"x=@{tmp_path / 'x.npy'}"]) == 1
    assert "allow_pickle=False" in capsys.readouterr().err


def test_health(echo: EchoServer, capsys: Output) -> None:
    """0 when the server, or the model, serves; 1 when not."""
    assert main(["health"]) == 0
    assert main(["health", "echo"]) == 0
    assert main(["health", "unknown"]) == 1
    echo.ready = False
    assert main(["health"]) == 1
    assert capsys.readouterr().out.split() == [
        "SERVING",
        "SERVING",
        "SERVICE_UNKNOWN",
        "NOT_SERVING",
    ]


@pytest.mark.parametrize("model", [[], ["echo"]])
def test_health_without_the_standard_service(
    echo: EchoServer, capsys: Output, model: list[str]
) -> None:
    """A server without grpc.health.v1 is asked by the protocol's own readiness."""
    echo.failures["Check"] = Failure(grpc.StatusCode.UNIMPLEMENTED, "no such service", times=2)
    assert main(["health", *model]) == 0
    echo.ready = False
    assert main(["health", *model]) == 1
    assert capsys.readouterr().out.split() == ["SERVING", "NOT_SERVING"]


def test_health_of_nobody(capsys: Output) -> None:
    """Where no server is, the exit code is 1 and the reason is printed."""
    assert main(["health", "--url", "127.0.0.1:1"]) == 1
    assert "UNAVAILABLE" in capsys.readouterr().err


def test_models(echo: EchoServer, capsys: Output) -> None:
    """Every version with its state, and why it does not serve."""
    assert main(["models"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows == [
        ["MODEL", "VERSION", "STATE", "REASON"],
        ["echo", "3", "READY"],
        ["torn", "1", "UNAVAILABLE", "no", "file"],
    ]
    assert main(["models", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[1]["reason"] == "no file"


def test_metadata(echo: EchoServer, capsys: Output) -> None:
    """The server, or a model's tensors, in words or as JSON."""
    assert main(["metadata"]) == 0
    assert capsys.readouterr().out == "echo 1.2\nextensions: statistics\n"
    assert main(["metadata", "echo"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("echo, none, versions 1, 3\n")
    assert ["input", "x", "FP32", "[-1,", "2]"] in [line.split() for line in text.splitlines()]
    assert main(["metadata", "echo", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["inputs"][0]["shape"] == ["-1", "2"]
    assert main(["metadata", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["version"] == "1.2"


def test_errors_of_the_server(echo: EchoServer, capsys: Output) -> None:
    """The server's words come out, with where it is and exit code 1."""
    assert main(["metadata", "unknown"]) == 1
    assert f"{echo.url}: NOT_FOUND: unknown model: 'unknown'" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["fly"], ["infer"], ["health", "--timeout", "soon"]])
def test_bad_usage(arguments: list[str], capsys: Output) -> None:
    """Usage that cannot be understood exits with 2 and says what is expected."""
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage: headrace-client" in capsys.readouterr().err


def test_half_of_mutual_tls(echo: EchoServer, capsys: Output) -> None:
    """A certificate without its key is refused before anything is sent."""
    assert main(["health", "--client-cert", "c.pem"]) == 1
    assert "both client_cert and client_key" in capsys.readouterr().err


def test_default_url(monkeypatch: pytest.MonkeyPatch, capsys: Output) -> None:
    """Without a flag and without HEADRACE_URL it is localhost:8001."""
    monkeypatch.delenv("HEADRACE_URL", raising=False)
    with pytest.raises(SystemExit):
        main(["health", "--help"])
    assert "localhost:8001" in capsys.readouterr().out


def test_headers_go_with_every_call(echo: EchoServer, capsys: Output) -> None:
    """An authorization, say, reaches the server with whatever is asked."""
    assert main(["models", "-H", "x-owner: me", "-H", "x-raw-bin:AAE="]) == 0
    assert echo.metadata[-1]["x-owner"] == "me"
    assert "x-raw-bin" in echo.metadata[-1]
    assert main(["models", "-H", "X-Owner:me"]) == 1
    assert "expected lower case" in capsys.readouterr().err
