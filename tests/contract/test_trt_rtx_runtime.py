"""The header sniff and the load path against a real TensorRT: RTX, which builds plans on a CPU."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from headrace.engines.plan import RTX_HEADER_BYTES, read_plan_header
from headrace.errors import ConfigError
from helpers.rtx_process import run_python

# The first test of a run fetches 96 MB.
pytestmark = pytest.mark.timeout(300)

SUBJECT = Path(__file__).parent.parent / "helpers" / "rtx_subject.py"


def run(*arguments: str | Path) -> str:
    """Run the subject with the RTX runtime and, wherever this runs, without a GPU."""
    ran = run_python(SUBJECT, *arguments)
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


def changed(plan: Path, folder: Path, at: int, new: bytes) -> Path:
    """Write a copy of a plan with some of its bytes changed."""
    content = bytearray(plan.read_bytes())
    content[at : at + len(new)] = new
    path = folder / "changed.plan"
    path.write_bytes(content)
    return path


def test_a_plan_of_another_release_is_told_by_both_versions(
    plan: Path, tmp_path: Path, facts: dict[str, Any]
) -> None:
    """One line has the release that built it, the one that is here, and what to do about it."""
    text = refusal(changed(plan, tmp_path, 24, bytes((1, 6, 0, 99))), "--unasked")
    assert "built by TensorRT-RTX 1.6.0.99 for" in text
    assert f"here is tensorrt_rtx_bindings {facts['version']} on GPU 0" in text
    assert text.endswith("the releases differ: build the plan with the TensorRT-RTX that is here")
    assert "\n" not in text


def test_a_plan_for_another_architecture_is_told_by_both_capabilities(plan: Path) -> None:
    """One line has what it was compiled for, what the GPU has, and the flag that would mend it."""
    text = refusal(plan, "--capability", "8.9")
    assert "for compute capability 8.6, 12.0; here is" in text
    assert "compute capability 8.9); it is not for this GPU" in text
    assert text.endswith("build it with --compute-capabilities 8.9")
    assert "it is not for this GPU" not in refusal(plan, "--capability", "8.6")


@pytest.mark.parametrize("kept", [1.0, 0.5])
def test_a_plan_of_garbage_behind_a_good_header_is_refused_by_the_runtime(
    plan: Path, tmp_path: Path, kept: float
) -> None:
    """What the header cannot show the runtime finds, and its own words are in the text."""
    content = plan.read_bytes()
    size = int(len(content) * kept)
    body = content[RTX_HEADER_BYTES:size] if kept < 1 else bytes(size - RTX_HEADER_BYTES)
    whole = content[:16] + struct.pack("<Q", size) + content[24:RTX_HEADER_BYTES] + body
    path = tmp_path / "broken.plan"
    path.write_bytes(whole)
    text = refusal(path, "--unasked")
    assert "refuses it (IRuntime::deserializeCudaEngine: Error Code 1: Serialization" in text
    assert "\n" not in text


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "is empty; expected a TensorRT plan"),
        (b"\x01\x02" * 500, "is no TensorRT plan: found b'\\x01\\x02"),
        (b"vtrt" + bytes(20), "is truncated: 24 bytes, but the header"),
    ],
    ids=["empty", "garbage", "cut in the header"],
)
def test_what_is_no_plan_is_told_without_the_runtime(
    tmp_path: Path, content: bytes, told: str
) -> None:
    """Such a file never reaches the runtime."""
    path = tmp_path / "model.plan"
    path.write_bytes(content)
    assert told in refusal(path)


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
