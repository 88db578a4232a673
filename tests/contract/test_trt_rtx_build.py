"""`headrace build` with a real TensorRT: RTX, which builds plans on a CPU."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from headrace.engines.plan import read_plan_header
from helpers.onnx_models import FLOAT, INT64, adds, model, port, two, unchecked
from helpers.rtx_process import rtx_environment, run_python

# The first test of a run fetches 96 MB.
pytestmark = pytest.mark.timeout(300)

SHAPES = ("--min", "x:1x4", "--opt", "x:4x4", "--max", "x:8x4")


@pytest.fixture
def onnx_file(tmp_path: Path) -> Path:
    return save(adds(1.0), tmp_path)


def save(graph: onnx.ModelProto, folder: Path) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(graph.SerializeToString())
    return path


def build(path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return run_python("-c", "from headrace.cli import main; main()", "build", path, *options)


def account(path: Path, *options: str) -> dict[str, Any]:
    """Build, and return what the command says that it built."""
    ran = build(path, "--json", *options)
    assert ran.returncode == 0, ran.stderr
    told: dict[str, Any] = json.loads(ran.stdout)
    return told


def refused(path: Path, *options: str) -> str:
    """Build what cannot be built; return the error after seeing that nothing was left behind."""
    before = sorted(path.parent.iterdir())
    ran = build(path, *options)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert sorted(path.parent.iterdir()) == before
    (line,) = [each for each in ran.stderr.splitlines() if each.startswith("Error: ")]
    return line


def test_a_plan_is_built_for_what_was_asked(onnx_file: Path, tmp_path: Path) -> None:
    """The file's own header has the capabilities, and the account has what went in."""
    output = tmp_path / "out.plan"
    told = account(
        onnx_file, *SHAPES, "-o", str(output), "--backend", "rtx", "--compute-capabilities=8.6,12.0"
    )
    header = read_plan_header(output)
    assert (header.kind, header.compute_capabilities) == ("rtx", ("8.6", "12.0"))
    assert told["plan"]["size_bytes"] == output.stat().st_size
    assert told["plan"]["built_by"] == told["builder"]["version"] == header.version_text
    assert told["profiles"] == [{"x": [[1, 4], [4, 4], [8, 4]]}]
    assert told["inputs"] == [{"name": "x", "datatype": "FLOAT", "shape": [-1, 4]}]
    assert told["check"] == "not loaded: there is no GPU here"


def test_the_account_for_people_tells_progress_and_result(onnx_file: Path) -> None:
    """Steps go to stderr while it builds, facts to stdout after it; the name is the model's."""
    ran = build(onnx_file, *SHAPES)
    assert ran.returncode == 0, ran.stderr
    steps = re.findall(r"^Building engine: (\d)/\d$", ran.stderr, re.MULTILINE)
    assert steps == sorted(steps)
    assert len(steps) > 1
    assert "profile 0    x 1x4 … 4x4 … 8x4" in ran.stdout
    assert f"plan         {onnx_file.with_suffix('.plan')}" in ran.stdout
    assert "precision    that of the graph (strongly typed): its results are" in ran.stdout
    assert onnx_file.with_suffix(".plan").stat().st_mode & 0o044 == 0o044  # not for its owner alone


def test_several_profiles_are_built(onnx_file: Path) -> None:
    """Each round of --min, --opt and --max is a profile, in order."""
    told = account(onnx_file, *SHAPES, "--min=x:8x4", "--opt=x:16x4", "--max=x:32x4")
    assert [each["x"][2] for each in told["profiles"]] == [[8, 4], [32, 4]]
    assert told["plan"] is not None


def test_shapes_come_from_the_configuration_of_the_model(tmp_path: Path) -> None:
    """In Triton's layout the range is 1 to max_batch_size, tuned for the preferred batch."""
    folder = tmp_path / "plus" / "1"
    folder.mkdir(parents=True)
    config = folder.parent / "config.pbtxt"
    config.write_text("max_batch_size: 16\ndynamic_batching { preferred_batch_size: [4, 8] }\n")
    told = account(save(adds(1.0), folder))
    assert told["profiles"] == [{"x": [[1, 4], [8, 4], [16, 4]]}]
    assert told["shapes_from"] == str(config)


def test_the_precision_told_is_that_of_the_graph(tmp_path: Path) -> None:
    """A graph in fp16 is told as fp16: nothing else decides it in a strongly typed network."""
    half = TensorProto.FLOAT16
    graph = model(
        [helper.make_node("Add", ["x", "x"], ["s"]), helper.make_node("Relu", ["s"], ["y"])],
        [port("x", half, ["n", 4])],
        [port("y", half, ["n", 4])],
    )
    precision = account(save(graph, tmp_path), "--max=x:8x4", "--no-tf32")["precision"]
    assert precision["datatypes"] == {"fp16": 2}
    assert precision["is_strongly_typed"]
    assert not precision["allowed"]
    assert not precision["uses_tf32"]


def test_values_of_a_shape_tensor_have_their_range(tmp_path: Path) -> None:
    """The same notation gives a shape tensor's values: TensorRT refuses to build without them."""
    graph = model(
        [helper.make_node("Expand", ["x", "size"], ["y"])],
        [port("x", FLOAT, [1]), port("size", INT64, [2])],
        [port("y", FLOAT, ["a", "b"])],
    )
    path = save(graph, tmp_path)
    assert "no shapes for the shape tensor 'size'" in refused(path)
    told = account(path, "--min=size:1x1", "--opt=size:2x3", "--max=size:4x4")
    assert told["profiles"] == [{"size": [[1, 1], [2, 3], [4, 4]]}]


def test_a_dry_run_checks_and_writes_nothing(onnx_file: Path) -> None:
    """All is parsed and fitted, and there is no plan."""
    assert account(onnx_file, *SHAPES, "--dry-run")["plan"] is None
    assert not onnx_file.with_suffix(".plan").exists()


def test_nodes_that_tensorrt_cannot_take_are_named(tmp_path: Path) -> None:
    """One line has every such node with its name and operator, and nothing is written."""
    nodes = [
        helper.make_node("Foo", ["x"], ["a"], name="first"),
        helper.make_node("Bar", ["a"], ["y"], name="second"),
    ]
    ports = [port("x", FLOAT, ["n", 4])], [port("y", FLOAT, ["n", 4])]
    line = refused(save(unchecked(nodes, *ports), tmp_path), *SHAPES)
    assert "node 0 'first' (Foo): " in line
    assert "node 1 'second' (Bar): " in line


@pytest.mark.parametrize(
    ("content", "told"),
    [(b"not a model", "Failed to parse the ONNX model"), (b"", "has no outputs: is it an ONNX")],
    ids=["garbage", "empty"],
)
def test_files_that_are_no_models_are_refused(tmp_path: Path, content: bytes, told: str) -> None:
    """An empty file, too, which the parser itself would take."""
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    assert told in refused(path)


def test_a_failed_build_leaves_the_old_plan(tmp_path: Path) -> None:
    """What the builder itself refuses is told in its words; the file that was there stays."""
    weights = helper.make_tensor("w", FLOAT, [4, 4], [0.5] * 16)
    graph = model(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        [port("x", FLOAT, ["n", 4])],
        [port("y", FLOAT, ["n", 4])],
        [weights],
    )
    path = save(graph, tmp_path)
    old = path.with_suffix(".plan")
    old.write_bytes(b"the old one")
    line = refused(path, *SHAPES, "--compute-capabilities=7.5")
    assert "cannot build it: " in line
    assert "gave no reason" not in line
    assert old.read_bytes() == b"the old one"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--fp16",), "--fp16: tensorrt_rtx_bindings 1.7.1.116 has no such flag; since"),
        (("--version-compatible",), "an RTX plan runs on the release that built it"),
        (("--hardware-compatibility=ampere+",), "name GPUs by --compute-capabilities"),
        (("--timing-cache=t.cache",), "times nothing when it builds"),
        (("--compute-capabilities=9.0",), "there is no '9.0'; expected some of 7.5, 8.0, 8.6"),
        (("--backend=tensorrt",), "there is no GPU here; --backend rtx builds without one"),
        (("-o", "nowhere/model.plan"), "there is no folder nowhere"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_what_this_tensorrt_cannot_do_is_refused_before_the_build(
    onnx_file: Path, options: tuple[str, ...], told: str
) -> None:
    """An option that would have no effect is an error, and the text says what to do instead."""
    assert told in refused(onnx_file, *SHAPES, *options)


def test_all_inputs_need_their_range(tmp_path: Path) -> None:
    """A range for one of two dynamic inputs is not enough, and the other is named."""
    path = save(two(), tmp_path)
    assert "profile 0 leaves out the input 'b' of shape ?x3" in refused(path, "--max=a:8x2")


# Sends the signal from inside TensorRT's first phase, and lets it go on once the signal was heard.
INTERRUPT = """
import signal, sys, threading
from headrace.building import build
from headrace.cli import build_progress, main

# A shell's background jobs, and what they start, begin with SIGINT ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
is_heard = threading.Event()

class Noted(build.Progress):
    def cancel(self):
        super().cancel()
        is_heard.set()

class Interrupting(build_progress.Lines):
    def started(self, phase, parent, num_steps):
        if parent is None:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            assert is_heard.wait(30)

build.Progress = Noted
build_progress.Lines = Interrupting
main(sys.argv[1:])
"""


def test_ctrl_c_ends_the_build_and_leaves_nothing(tmp_path: Path) -> None:
    """SIGINT while TensorRT builds: the command ends with 130, and no file is there."""
    path = save(adds(1.0), tmp_path)
    ran = subprocess.run(
        [sys.executable, "-c", INTERRUPT, "build", str(path), *SHAPES],
        env=rtx_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 128 + signal.SIGINT, ran.stderr
    assert "ended; nothing was written" in ran.stderr
    assert list(tmp_path.iterdir()) == [path]
