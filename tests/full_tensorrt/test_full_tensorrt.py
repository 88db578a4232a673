"""A full TensorRT on a GPU: what is elsewhere compared, or stood in for, is run for real.

Each test is a line of "What is not proven here" in docs/decisions.md.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from headrace.device.base import Device
from headrace.engines.trt import TrtEngine, TrtOptions, open_engine
from headrace.errors import ConfigError, EngineError, RequestError
from helpers.full_trial import PROFILES, WIDTH, build
from helpers.plan_trial import Trial, run_captured, run_side_by_side
from helpers.serve_trial import answers, expected

Array = NDArray[Any]


@pytest.fixture
def engine(plan: Path, device: Device) -> Iterator[TrtEngine]:
    opened = open_engine(plan, device)
    yield opened
    opened.close()


def batches(*num_rows: int) -> list[Array]:
    rng = np.random.default_rng(11)
    return [rng.standard_normal((rows, WIDTH), np.float32) for rows in num_rows]


def assert_as_expected(model: Path, given: list[Array], found: list[Array]) -> None:
    """Compare with ONNX Runtime on the CPU, to what the order of sums makes of fp32."""
    for x, y in zip(given, found, strict=True):
        np.testing.assert_allclose(y, expected(model, x), rtol=1e-4, atol=1e-5)


def is_tensorrt_10() -> bool:
    return version("tensorrt").startswith("10.")


def test_a_plan_is_built_and_loaded(model: Path, tmp_path: Path) -> None:
    """The builder runs, tells its progress, and what it built loads as a server would load it."""
    output = tmp_path / "small.plan"
    ran = build(model, output, *PROFILES)
    assert ran.code == 0, ran.stderr
    assert ran.account["check"].startswith("loaded on GPU 0: a plan built by TensorRT")
    assert ran.account["plan"]["size_bytes"] == output.stat().st_size
    assert re.search(r"\d+/\d+", ran.stderr)


def test_the_engine_tells_what_was_built(engine: TrtEngine) -> None:
    """Signature, profiles and memory are those of the model and of the flags."""
    (x,), (y,) = engine.signature.inputs, engine.signature.outputs
    assert (x.name, x.datatype, x.shape) == ("x", "FP32", (None, WIDTH))
    assert (y.name, y.datatype, y.shape) == ("y", "FP32", (None, WIDTH))
    assert engine.profile_rows == (16, 32)
    assert engine._plan.engine.num_aux_streams == 0
    if engine.capabilities.has_engine_stat:
        assert engine.weights_bytes > 0


def test_contexts_of_one_engine_run_side_by_side(
    engine: TrtEngine, device: Device, model: Path
) -> None:
    """Four contexts share both profiles, with memory of ours: every answer is its own input's."""
    given = batches(*(1 + 7 * index % 32 for index in range(48)))
    found = run_side_by_side(engine, device, given, num_contexts=4)
    assert_as_expected(model, given, found)


def test_an_enqueue_can_be_captured_and_replayed(
    engine: TrtEngine, device: Device, model: Path
) -> None:
    """A graph of the enqueue computes with what lies at its addresses when it is launched."""
    given = batches(8, 8, 8, 8)
    assert_as_expected(model, given, run_captured(engine, device, given))


def test_a_shape_outside_of_every_profile_is_refused(engine: TrtEngine, device: Device) -> None:
    """By us before TensorRT is asked; and TensorRT's own False becomes its recorder's text."""
    with pytest.raises(RequestError, match=r"expected \[1..16, 64\] or \[16..32, 64\]"):
        engine.output_shapes([(33, WIDTH)])
    with Trial(engine, device) as trial:
        (context, *_others) = trial.context._contexts.values()  # type: ignore[attr-defined]
        with pytest.raises(EngineError) as caught:
            context.set_shape("x", (99, WIDTH))
        assert "TensorRT refuses the shape [99, 64] of input 'x': " in str(caught.value)
        assert "gave no reason" not in str(caught.value)


def test_a_plan_is_served(plan: Path, model: Path, tmp_path: Path) -> None:
    """Over gRPC, from many threads, with batches of every size: ONNX Runtime's answers."""
    given = batches(*(1 + 5 * index % 32 for index in range(400)))
    assert_as_expected(model, given, answers(plan, given, folder=tmp_path))


def test_precision_is_what_the_account_says(model: Path, device: Device, tmp_path: Path) -> None:
    """TensorRT 10 may be allowed fp16 and then stays near; later ones refuse the flag."""
    output = tmp_path / "half.plan"
    ran = build(model, output, *PROFILES, "--fp16")
    if not is_tensorrt_10():
        assert ran.code == 1
        assert "the precision is that of the graph" in ran.stderr
        assert not output.exists()
        return
    assert ran.account["precision"]["allowed"] == ["fp16"]
    opened = open_engine(output, device)
    (x,) = batches(8)
    (y,) = run_side_by_side(opened, device, [x], num_contexts=1)
    opened.close()
    np.testing.assert_allclose(y, expected(model, x), rtol=2e-2, atol=2e-2)


def test_the_timing_cache_serves_the_next_build(model: Path, tmp_path: Path) -> None:
    """The first build writes it, the second one takes it."""
    flags = (*PROFILES, f"--timing-cache={tmp_path / 'timing.cache'}")
    first = build(model, tmp_path / "first.plan", *flags)
    assert first.code == 0, first.stderr
    assert not first.account["is_timing_cache_used"]
    second = build(model, tmp_path / "second.plan", *flags)
    assert second.account["is_timing_cache_used"], second.stderr


@pytest.mark.parametrize("flags", [("--hardware-compatibility=ampere+",), ("--workspace=64M",)])
def test_other_options_give_plans_that_load(
    model: Path, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    """What the builder takes, the runtime takes."""
    ran = build(model, tmp_path / "other.plan", *PROFILES, *flags)
    assert ran.code == 0, ran.stderr
    assert ran.account["check"].startswith("loaded on GPU 0")


def test_host_code_runs_only_when_it_is_allowed(
    model: Path, device: Device, tmp_path: Path
) -> None:
    """A version-compatible plan carries it: refused with the flag's name, loaded with the flag."""
    output = tmp_path / "compatible.plan"
    ran = build(model, output, *PROFILES, "--version-compatible")
    assert ran.code == 0, ran.stderr
    with pytest.raises(ConfigError, match="--allow-host-code"):
        open_engine(output, device)
    open_engine(output, device, options=TrtOptions(allow_host_code=True)).close()


def test_the_lean_runtime_runs_a_compatible_plan(model: Path, tmp_path: Path) -> None:
    """Where the lean runtime is installed, too: a plan without host code runs there."""
    if not find_spec("tensorrt_lean"):
        pytest.skip("tensorrt_lean is not installed: loading plans with it stays unproven")
    output = tmp_path / "compatible.plan"
    ran = build(model, output, *PROFILES, "--version-compatible", "--exclude-lean-runtime")
    assert output.exists(), ran.stderr
    lean = subprocess.run(
        [sys.executable, "-c", LEAN, str(output), str(tmp_path / "y.npy")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert lean.returncode == 0, lean.stderr
    assert_as_expected(model, batches(8), [np.load(tmp_path / "y.npy")])


LEAN = f"""
import sys
sys.modules.update(dict.fromkeys(("tensorrt", "tensorrt_bindings")))  # None: ImportError
import numpy as np
from pathlib import Path
from headrace.device import open_device
from headrace.engines.trt import open_engine
from helpers.plan_trial import run_side_by_side
device = open_device("cudart")
engine = open_engine(Path(sys.argv[1]), device)
assert engine.capabilities.name.startswith("tensorrt_lean")
x = np.random.default_rng(11).standard_normal((8, {WIDTH}), np.float32)
np.save(sys.argv[2], run_side_by_side(engine, device, [x], num_contexts=1)[0])
"""


def test_broken_plans_are_refused_in_tensorrts_words(
    plan: Path, device: Device, tmp_path: Path
) -> None:
    """Cut in half, or of another release: one line with what it is, what is here and a remedy."""
    content = plan.read_bytes()
    cut, foreign = tmp_path / "cut.plan", tmp_path / "foreign.plan"
    cut.write_bytes(content[: len(content) // 2])
    foreign.write_bytes(content[:24] + bytes((9, 2, 0, 5)) + content[28:])
    for path, told in ((cut, "refuses it ("), (foreign, "built by TensorRT 9.2.0.5")):
        with pytest.raises(ConfigError) as caught:
            open_engine(path, device)
        assert told in str(caught.value)
        assert "\n" not in str(caught.value)
    device.check()
