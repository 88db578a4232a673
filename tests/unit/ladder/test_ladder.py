"""`headrace ladder` on the CPU: the real engine, slots, scheduler and poller."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner, Result

from headrace.cli import main
from headrace.device.host import HostDevice
from headrace.engines.ort import OrtEngine
from headrace.errors import ConfigError
from headrace.ladder.subject import Subject, parse_shape
from headrace_proto.datatypes import DATATYPES
from helpers import onnx_models
from helpers.ladder_schema import check_report

DIGITS = Path(__file__).parents[3] / "deploy" / "models" / "digits"
SHORT = ("--device", "host", "--seconds", "0.05", "--quiet")


def ladder(*args: str | Path) -> Result:
    return CliRunner().invoke(main, ["ladder", *map(str, args)])


def report(*args: str | Path, into: Path) -> dict[str, Any]:
    result = ladder(*args, *SHORT, "--json", into)
    assert result.exit_code == 0, result.output
    told: dict[str, Any] = json.loads(into.read_text("utf-8"))
    check_report(told)
    return told


def test_the_ladder_of_a_real_model(tmp_path: Path) -> None:
    """Every rung that a CPU has is measured, told, drawn, and something is recommended."""
    chart = tmp_path / "chart.svg"
    told = report(DIGITS, "--chart", chart, into=tmp_path / "ladder.json")
    names = [rung["name"] for rung in told["rungs"]]
    assert names[:7] == [
        *("synchronous", "asynchronous", "double buffer"),
        *("2 streams", "4 streams", "8 streams", "16 streams"),
    ]
    assert [rung["rows"] for rung in told["rungs"][7:]] == [2, 4, 8, 16, 32]
    assert all(rung["figures"] for rung in told["rungs"]), told["rungs"]
    assert told["inputs"] == {"input": [1, 64]}
    assert told["device"].startswith("host")
    assert told["recommendation"]["throughput"]["name"] in names
    for rung in told["rungs"]:
        figures = rung["figures"]
        rate = figures["num_requests"] * rung["rows"] / figures["seconds"]
        assert figures["rows_per_s"] == pytest.approx(rate)
        assert figures["copy_share"] == 0
        assert figures["compute_share"] > 0
        assert figures["hidden_copy_share"] is None
    ET.fromstring(chart.read_text("utf-8"))


def test_only_the_rungs_that_were_asked_for(tmp_path: Path) -> None:
    """With more rows a request, batches begin above them."""
    model = DIGITS / "1" / "model.onnx"
    args = ("--rungs", "sync,2,batch", "--rows", "8")
    told = report(model, *args, into=tmp_path / "ladder.json")
    assert [(rung["slots"], rung["rows"]) for rung in told["rungs"][:2]] == [(1, 8), (2, 8)]
    assert [rung["rows"] for rung in told["rungs"][2:]] == [16, 32]
    assert told["inputs"] == {"input": [8, 64]}


def test_progress_is_told_on_the_way() -> None:
    """Without --quiet each rung is a line on standard error; the table is on standard output."""
    result = ladder(DIGITS, "--device", "host", "--seconds", "0.02", "--rungs", "sync")
    assert result.exit_code == 0, result.output
    assert result.stderr.startswith("synchronous: ")
    assert result.stderr.endswith(" rows/s\n")
    assert "synchronous" in result.stdout


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--rungs", "all"), "expected some of sync,async,double,2,4,8,16,graphs,batch"),
        (("--shape", "input"), "expected INPUT:1x3x224x224"),
        (("--shape", "x:1x64"), "there is no input 'x'; the model has 'input'"),
        (("--shape", "input:1x65"), "'input' has the shape ?x64, got 1x65"),
        (("--chart", "ladder.png"), "expected FILE.svg or .html"),
    ],
)
def test_what_cannot_be_meant_is_refused(args: tuple[str, ...], says: str) -> None:
    """The text says what came and what was expected; nothing is measured."""
    result = ladder(DIGITS, "--device", "host", *args)
    assert result.exit_code == 2
    assert says in result.output


def test_a_file_that_is_no_model_is_refused(tmp_path: Path) -> None:
    """By its suffix, or by what the engine says of it."""
    text = tmp_path / "model.txt"
    text.write_text("nothing")
    assert "does not end in one of .onnx" in ladder(text, "--device", "host").output
    broken = tmp_path / "broken.onnx"
    broken.write_text("nothing")
    result = ladder(broken, "--device", "host")
    assert result.exit_code == 2
    assert "ONNX Runtime cannot load it" in result.output
    result = ladder(tmp_path, "--device", "host")
    assert result.exit_code == 2
    assert str(tmp_path) in result.output


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("input:1x3x224x224", ("input", (1, 3, 224, 224))),
        ("serving:input:0:8", ("serving:input:0", (8,))),
        ("scalar:", ("scalar", ())),
    ],
)
def test_shapes(text: str, expected: tuple[str, tuple[int, ...]]) -> None:
    """A name may hold colons; the last one ends it."""
    assert parse_shape(text) == expected


@pytest.mark.parametrize("text", ["", ":", ":1", "1x3", "x:1x", "x:-1x3", "x:a", "x:1,3"])
def test_wrong_shapes(text: str) -> None:
    """Anything else is refused."""
    with pytest.raises(ConfigError, match="expected INPUT"):
        parse_shape(text)


@pytest.fixture
def device() -> Iterator[HostDevice]:
    device = HostDevice()
    yield device
    assert device._ledger.names() == []


def test_every_kind_of_input_can_be_made(device: HostDevice, tmp_path: Path) -> None:
    """Each tensor has the bytes that its shape and datatype ask for; floats are no zeros."""
    repository = onnx_models.write_repository(tmp_path / "models")
    num_models = 0
    for path in sorted(repository.glob("*/1/model.onnx")):
        subject = Subject(device, OrtEngine(path, device))
        payload = subject.payload(subject.rows)
        specs = subject.engine.signature.inputs
        for spec, shape, tensor in zip(
            specs, payload.layout.input_shapes, payload.tensors, strict=True
        ):
            size = DATATYPES[spec.datatype].itemsize_bytes or 4
            for dim in shape:
                size *= dim
            assert len(tensor) == size
            if spec.datatype == "FP32" and size:
                assert any(tensor)
        subject.close()
        num_models += 1
    assert num_models
