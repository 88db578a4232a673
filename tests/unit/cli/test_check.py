"""`headrace check` lists every fault and ends with 1, or says that there is none."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from headrace.cli import main
from helpers import onnx_models

DIGITS = Path(__file__).parents[3] / "deploy" / "models" / "digits"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    path = tmp_path / "models"
    path.mkdir()
    shutil.copytree(DIGITS, path / "digits")
    return path


def check(*args: str | Path) -> Result:
    return CliRunner().invoke(main, ["check", *map(str, args)])


def write_config(repository: Path, text: str, name: str = "digits") -> None:
    (repository / name / "config.pbtxt").write_text(text)


def test_a_good_repository_ends_with_0(repository: Path) -> None:
    """The models are named, and that nothing is wrong."""
    result = check(repository)
    assert result.exit_code == 0, result.output
    assert "found: digits (onnxruntime_onnx), version 1" in result.output
    assert "1 model, no faults" in result.output


def test_every_fault_of_every_model_is_listed(repository: Path) -> None:
    """One wrong model does not hide the next, nor the good ones."""
    for name in ("second", "third"):
        shutil.copytree(repository / "digits", repository / name)
    write_config(repository, 'input { name: "x" data_type: TYPE_FP32 dims: 64 }\n', "second")
    write_config(repository, "max_batch_size: = 3\n", "third")
    result = check(repository, "--json")
    assert result.exit_code == 1
    told = json.loads(result.stdout)
    faulty = {Path(fault["path"]).parent.name for fault in told["faults"]}
    assert faulty == {"second", "third"}
    assert "digits" in [model["name"] for model in told["models"]]
    assert all(fault["reason"] for fault in told["faults"])
    text = check(repository)
    assert text.exit_code == 1
    assert text.output.count("fault: ") == len(told["faults"])


def test_what_is_not_honoured_is_a_warning_and_no_fault(repository: Path) -> None:
    """A field that is understood but not acted upon is named with its path."""
    text = (repository / "digits" / "config.pbtxt").read_text()
    write_config(repository, text + "\noptimization { eager_batching: true }\n")
    result = check(repository, "--json")
    told = json.loads(result.stdout)
    assert any("eager_batching" in warning for warning in told["warnings"])
    assert result.exit_code == (1 if told["faults"] else 0)


def test_a_file_is_checked_without_a_repository(repository: Path) -> None:
    """A model file counts as a model of its own, a broken one as a fault."""
    model = repository / "digits" / "1" / "model.onnx"
    assert check(model).exit_code == 0
    model.write_bytes(b"\x08no model")
    assert check(model).exit_code == 1


def test_strictness_is_that_of_serve(repository: Path) -> None:
    """Without completion a missing configuration is a fault."""
    (repository / "digits" / "config.pbtxt").unlink()
    assert check(repository).exit_code == 0
    result = check(repository, "--disable-auto-complete-config")
    assert result.exit_code == 1
    assert "fault: " in result.output


def test_an_empty_repository_says_what_belongs_there(tmp_path: Path) -> None:
    """No model is no fault, and a newcomer is told the layout."""
    result = check(tmp_path)
    assert result.exit_code == 0
    assert "MODEL/VERSION/model.onnx" in result.output


def test_names_cannot_write_to_the_terminal(repository: Path) -> None:
    """A folder's name with a terminal escape is shown escaped."""
    (repository / "digits").rename(repository / "di\x1b[2Jgits")
    result = check(repository)
    assert result.exit_code == 1
    assert "\x1b" not in result.output


def test_arguments_are_required() -> None:
    """Without a repository, or with one that is not there, it is a usage error."""
    assert check().exit_code == 2
    assert check("/no/such").exit_code == 2


ENSEMBLE = """platform: "ensemble" max_batch_size: 4
input { name: "image" data_type: TYPE_FP32 dims: 4 }
output { name: "scores" data_type: TYPE_FP32 dims: 4 }
ensemble_scheduling { max_inflight_requests: 3 step { model_name: "m" model_version: -1
  input_map { key: "x" value: "image" } output_map { key: "y" value: "scores" } } }
"""


def test_an_ensemble_is_checked_against_its_models(repository: Path) -> None:
    """What does not fit is a fault, what has no effect a warning; so is a model that is missing."""
    onnx_models.save(onnx_models.adds(1), repository / "m/1/model.onnx")
    (repository / "a_pipeline/1").mkdir(parents=True)
    write_config(repository, ENSEMBLE, "a_pipeline")
    good = check(repository)
    assert good.exit_code == 0, good.output
    assert "found: a_pipeline (ensemble), version 1" in good.output
    assert "ensemble_scheduling.max_inflight_requests: is not honoured yet" in good.output
    write_config(repository, ENSEMBLE.replace("TYPE_FP32", "TYPE_FP16", 1), "a_pipeline")
    wrong = check(repository)
    assert wrong.exit_code == 1
    assert "TYPE_FP16 in the ensemble, but TYPE_FP32 in model 'm'" in wrong.output
    shutil.rmtree(repository / "m")
    write_config(repository, ENSEMBLE, "a_pipeline")
    missing = check(repository)
    assert missing.exit_code == 1
    assert "there is no model 'm'" in missing.output


def test_inspect_shows_an_ensemble(repository: Path) -> None:
    """It is no file; its configuration has the steps."""
    folder = repository / "pipeline"
    (folder / "1").mkdir(parents=True)
    write_config(repository, ENSEMBLE, "pipeline")
    result = CliRunner().invoke(main, ["inspect", str(folder), "--json"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert (report["name"], report["files"]) == ("pipeline", [])
    assert report["config"]["ensemble_scheduling"]["step"][0]["model_name"] == "m"
