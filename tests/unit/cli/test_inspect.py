"""`headrace inspect` tells what a model is, of a plan also where no TensorRT is."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import onnxruntime
import pytest
from click.testing import CliRunner, Result
from google.protobuf import text_format

from headrace.cli import main
from headrace_proto.v1 import model_config_pb2 as config_pb
from helpers.fake_plans import double_plan, fill_plan, write_plan
from helpers.trt_rig import Rig

DIGITS = Path(__file__).parents[3] / "deploy" / "models" / "digits"
MODEL = DIGITS / "1" / "model.onnx"
# What TensorRT-RTX 1.7.1.116 wrote for compute capability 8.6, padded to the size that it states.
RTX_HEAD = bytes.fromhex("76747274000000000200000000000000340a020000000000010701747674727404")


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "classify.plan"
    path.write_bytes(RTX_HEAD.ljust(0x20A34, b"\0"))
    return path


def inspect(path: Path, *args: str) -> Result:
    return CliRunner().invoke(main, ["inspect", str(path), *args])


def report(path: Path) -> dict[str, Any]:
    result = inspect(path, "--json")
    assert result.exit_code == 0, result.output
    report: dict[str, Any] = json.loads(result.stdout)
    return report


def test_signature_equals_what_onnx_runtime_says() -> None:
    """Names, order and shapes of the tensors are ONNX Runtime's own; dynamic dimensions are -1."""
    session = onnxruntime.InferenceSession(str(MODEL), providers=["CPUExecutionProvider"])
    (file,) = report(MODEL)["files"]
    for side, nodes in (("inputs", session.get_inputs()), ("outputs", session.get_outputs())):
        expected = [
            (node.name, [dim if isinstance(dim, int) else -1 for dim in node.shape])
            for node in nodes
        ]
        assert [(tensor["name"], tensor["shape"]) for tensor in file[side]] == expected
    assert file["inputs"][0]["datatype"] == "FP32"
    assert file["platform"] == "onnxruntime_onnx"
    assert file["size_bytes"] == MODEL.stat().st_size
    assert file["plan"] is None


def test_a_file_without_configuration_shows_the_one_it_would_get() -> None:
    """The configuration is complete: batching, inputs and outputs come from the model."""
    told = report(MODEL)
    assert told["name"] == "model"
    assert told["config"]["max_batch_size"] > 0
    assert [tensor["name"] for tensor in told["config"]["input"]] == ["input"]
    assert told["config"]["input"][0]["dims"] == ["64"]


def test_a_folder_shows_its_versions_and_its_own_configuration(tmp_path: Path) -> None:
    """What config.pbtxt says is kept, and every served version is told."""
    folder = tmp_path / "digits"
    shutil.copytree(DIGITS, folder)
    shutil.copytree(folder / "1", folder / "7")
    (folder / "config.pbtxt").write_text(
        "max_batch_size: 3\nversion_policy { all {} }\ndynamic_batching {}\n"
    )
    told = report(folder)
    assert told["name"] == "digits"
    assert [file["version"] for file in told["files"]] == [1, 7]
    assert told["config"]["max_batch_size"] == 3


def test_text_for_people_holds_a_configuration_that_can_be_used() -> None:
    """The text names file and tensors, and its configuration parses as a config.pbtxt."""
    result = inspect(DIGITS)
    assert result.exit_code == 0
    assert str(MODEL) in result.stdout
    lines = result.stdout.splitlines()
    tensor_lines = [line.split() for line in lines if line.startswith(("input", "output"))]
    assert ["input", "input", "FP32", "[?,", "64]"] in tensor_lines
    start = lines.index("configuration of digits, completed:")
    config = text_format.Parse("\n".join(lines[start + 1 :]), config_pb.ModelConfig())
    assert config.name == "digits"


def test_a_plan_tells_its_origin_without_tensorrt(plan: Path) -> None:
    """Magic, builder's version and compute capabilities are there, and why there is no more."""
    (file,) = report(plan)["files"]
    assert file["platform"] == "tensorrt_plan"
    assert file["plan"]["magic"] == "vtrt"
    assert file["plan"]["version"] == [1, 7, 1, 116]
    assert file["plan"]["capability_mask"] == 4
    assert file["plan"]["compute_capabilities"] == ["8.6"]
    text = inspect(plan).stdout
    assert "vtrt" in text
    assert "TensorRT-RTX 1.7.1.116 for compute capability 8.6" in text
    if file["inputs"] is None:
        assert file["reason"]
        assert file["reason"] in text


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "is empty"),
        (b"ftrt", "truncated"),
        (RTX_HEAD, "truncated"),
        (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
    ],
)
def test_a_broken_file_is_an_error_with_code_1(
    tmp_path: Path, content: bytes, expected: str
) -> None:
    """The text names the file and what it is instead."""
    path = tmp_path / "model.plan"
    path.write_bytes(content)
    result = inspect(path)
    assert result.exit_code == 1
    assert result.output.startswith(f"Error: {path}: ")
    assert expected in result.output


def test_an_onnx_file_that_does_not_load_is_an_error(tmp_path: Path) -> None:
    """A file that ONNX Runtime refuses ends with code 1 and its name."""
    path = tmp_path / "model.onnx"
    path.write_bytes(b"\x08no model")
    result = inspect(path)
    assert result.exit_code == 1
    assert str(path) in result.output


def test_a_folder_with_faults_lists_them_all(tmp_path: Path) -> None:
    """Several faults come in one go."""
    folder = tmp_path / "digits"
    shutil.copytree(DIGITS, folder)
    (folder / "config.pbtxt").write_text('name: "other"\ndefault_model_filename: "../model.onnx"\n')
    result = inspect(folder)
    assert result.exit_code == 1
    assert "name: " in result.output
    assert "default_model_filename: " in result.output


def test_a_path_that_does_not_exist_is_a_usage_error() -> None:
    """Code 2, as for every wrong argument."""
    assert inspect(Path("/no/such/model.onnx")).exit_code == 2


def test_a_plan_tells_what_serving_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By kind, also of a plan with shape tensors; other models do not tell it."""
    rig = Rig(tmp_path, monkeypatch)
    rig.install()
    monkeypatch.setattr("headrace.cli.openers.open_device", lambda _: rig.device)
    path = write_plan(tmp_path, double_plan())
    (file,) = report(path)["files"]
    lane_bytes = 512 + 16 * 4 * 4  # x, aligned, and y at the largest optimum
    assert file["memory_bytes"] == {
        "weights": 12345,
        "context": 4000,
        "lane": lane_bytes,
        "block": 4096,
    }
    text = inspect(path).output
    assert "weights 12,345 bytes once; a slot 4,000 bytes of activations" in text
    (shaped,) = report(write_plan(tmp_path, fill_plan()))["files"]
    assert shaped["memory_bytes"]["context"] == 0
    assert report(MODEL)["files"][0]["memory_bytes"] == {}
