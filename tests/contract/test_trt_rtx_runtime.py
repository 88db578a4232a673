"""The header sniff and the load path against a real TensorRT: RTX, which builds plans on a CPU."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headrace.engines.plan import RTX_HEADER_BYTES, read_plan_header
from headrace.errors import ConfigError
from helpers.trt_wheels import WheelError, rtx_runtime

# The first test of a run fetches 96 MB.
pytestmark = pytest.mark.timeout(300)

SUBJECT = Path(__file__).parent.parent / "helpers" / "rtx_subject.py"


def run(*arguments: str | Path) -> str:
    """Run the subject with the RTX runtime and, wherever this runs, without a GPU."""
    try:
        folder = rtx_runtime()
    except WheelError as error:
        pytest.skip(f"no RTX runtime to compare with: {error}")
    search = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
    ran = subprocess.run(
        [sys.executable, str(SUBJECT), *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": search, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rtx") / "model.plan"
    run("build", path, "8.6,12.0")
    return path


@pytest.fixture(scope="module")
def facts() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run("facts"))
    return found


def refusal(path: Path, *options: str) -> str:
    text: str = json.loads(run("load", path, *options))
    return text


def test_header_of_a_plan_just_built(plan: Path, facts: dict[str, Any]) -> None:
    """What is read from a plan is what the builder was and was asked for."""
    header = read_plan_header(plan)
    assert (header.kind, header.magic) == ("rtx", "vtrt")
    assert header.version_text == facts["version"]
    assert header.size_bytes == plan.stat().st_size
    assert header.compute_capabilities == ("8.6", "12.0")
    assert facts["header_bytes"] == RTX_HEADER_BYTES


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("7.5", ("7.5",)),
        ("8.0,8.9,12.1", ("8.0", "8.9", "12.1")),
        ("", ("8.0", "8.6", "8.9", "12.0", "12.1", "newer than 12.1")),
    ],
)
def test_each_capability_has_its_bit(tmp_path: Path, asked: str, found: tuple[str, ...]) -> None:
    """The mask in the header names just the compute capabilities that were asked for."""
    path = tmp_path / "model.plan"
    run("build", path, asked)
    assert read_plan_header(path).compute_capabilities == found


def test_refusal_has_the_first_words_of_the_runtime(plan: Path, facts: dict[str, Any]) -> None:
    """The text has what the real logger said, what the plan is and what is here."""
    text = refusal(plan)
    assert text.startswith(f"{plan}: tensorrt_rtx_bindings refuses it (")
    assert "GPU properties" in text
    assert f"built by TensorRT-RTX {facts['version']} for compute capability 8.6, 12.0" in text
    assert f"here is tensorrt_rtx_bindings {facts['version']} on GPU 0" in text


def test_refusal_has_the_first_recorded_error(plan: Path) -> None:
    """A load that fails in the runtime is told by its first recorded error, not by the echo."""
    text = refusal(plan, "--unasked")
    assert "refuses it (IRuntime::deserializeCudaEngine: " in text
    assert "cudaError" in text
    assert "catchCudaError" not in text


def test_diagnostics_of_the_runtime_are_named(plan: Path, tmp_path: Path) -> None:
    """What the runtime finds wrong, here the magic of another product, is told by its name."""
    path = tmp_path / "model.plan"
    path.write_bytes(b"ftrt" + plan.read_bytes()[4:])
    assert "(MALFORMED_ENGINE" in refusal(path)


@pytest.mark.parametrize("change", [lambda plan: plan[:-1], lambda plan: plan + b"\0"])
def test_what_the_sniff_refuses_the_runtime_refuses_too(
    plan: Path, tmp_path: Path, change: Any
) -> None:
    """A plan with a byte too few or too many is no plan, for the runtime as for us."""
    path = tmp_path / "model.plan"
    path.write_bytes(change(plan.read_bytes()))
    with pytest.raises(ConfigError, match=r"truncated|behind its end"):
        read_plan_header(path)


def test_the_plan_is_found_behind_a_json_text(plan: Path, tmp_path: Path) -> None:
    """The runtime gets as far with a wrapped plan as with the plan alone: past its header."""
    text = b'{"task": "classify"}'
    path = tmp_path / "model.engine"
    path.write_bytes(struct.pack("<I", len(text)) + text + plan.read_bytes())
    reason = refusal(path, "--unasked").partition("refuses it ")[2]
    assert reason == refusal(plan, "--unasked").partition("refuses it ")[2]
