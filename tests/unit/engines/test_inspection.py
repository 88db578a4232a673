"""What `headrace inspect` and `headrace check` find, on real ONNX models and hand-made plans."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from onnx import TensorProto, helper

from headrace.engines import ort
from headrace.engines.base import TensorSpec
from headrace.engines.inspection import Probe, inspect_file
from headrace.engines.model_config import LoadFacts
from headrace.engines.repository_check import check_repository
from headrace.errors import ConfigError
from helpers.model_repository import write_model

ONNX = "onnxruntime_onnx"
PLAN = struct.pack("<4sIQQ4B", b"ftrt", 0, 0, 0, 10, 13, 0, 35).ljust(64, b"\0")


def onnx_opener(path: Path) -> Probe:
    return Probe(ort.open_signature(path))


OPENERS = {ONNX: onnx_opener}


def onnx_bytes(shape: tuple[int | str, ...] = ("n", 64)) -> bytes:
    """An identity of one input and one output."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", [x], [y])
    opset = helper.make_opsetid("", 17)
    return helper.make_model(graph, opset_imports=[opset], ir_version=8).SerializeToString()


@pytest.mark.parametrize("name", ["m.onnx", "renamed.bin"])
def test_an_onnx_model_tells_its_signature(tmp_path: Path, name: str) -> None:
    """Under whatever name; the runtime is asked through what the caller brings."""
    (tmp_path / name).write_bytes(onnx_bytes())
    seen = inspect_file(tmp_path / name, OPENERS)
    assert (seen.platform.name, seen.size_bytes) == (ONNX, len(onnx_bytes()))
    assert seen.probe is not None
    assert seen.probe.signature.inputs == (TensorSpec("x", "FP32", (None, 64)),)
    assert seen.reason == ""


def test_a_folder_with_an_onnx_model_in_it_is_one(tmp_path: Path) -> None:
    """As a version folder holds models of several files."""
    (tmp_path / "model.onnx").write_bytes(onnx_bytes())
    assert inspect_file(tmp_path, OPENERS).path == tmp_path / "model.onnx"


@pytest.mark.parametrize("name", ["model.plan", "renamed.onnx"])
def test_a_plan_tells_its_header_without_tensorrt(tmp_path: Path, name: str) -> None:
    """By its magic, not by its name; and says why there is no signature."""
    (tmp_path / name).write_bytes(PLAN)
    seen = inspect_file(tmp_path / name, OPENERS)
    assert seen.header is not None
    assert (seen.header.magic, seen.header.version_text) == ("ftrt", "10.13.0.35")
    assert seen.probe is None
    assert "needs tensorrt, which is not installed" in seen.reason


def test_a_plan_that_cannot_be_loaded_still_tells_its_header(tmp_path: Path) -> None:
    """A plan of another GPU model is worth looking at here."""
    (tmp_path / "model.plan").write_bytes(PLAN)

    def refuse(path: Path) -> Probe:
        raise ConfigError("built for another GPU", path=str(path))

    seen = inspect_file(tmp_path / "model.plan", {"tensorrt_plan": refuse})
    assert seen.header is not None
    assert "built for another GPU" in seen.reason


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.onnx", b"\x08garbage", "ONNX Runtime cannot load it"),
        ("a.txt", b"hello", "is no TensorRT plan"),
        ("a.plan", b"", "is empty"),
        ("a.plan", PLAN[:20], "truncated"),
        ("gone.onnx", None, "cannot be read: No such file"),
    ],
)
def test_what_is_no_model_is_refused(
    tmp_path: Path, name: str, content: bytes | None, reason: str
) -> None:
    """The reason says what the file seems to be."""
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=reason):
        inspect_file(tmp_path / name, OPENERS)


def test_check_finds_every_fault_of_every_model(tmp_path: Path) -> None:
    """Of folders, configurations and model files; right models have none."""
    write_model(tmp_path, "broken", content=b"\x08garbage")
    write_model(tmp_path, "right", content=onnx_bytes())
    write_model(tmp_path, "syntax", "nonsense")
    write_model(
        tmp_path,
        "wrong",
        """max_batch_size: 2
        input { name: "x" data_type: TYPE_FP16 dims: 3 }
        optimization { priority: PRIORITY_MAX }
        version_policy { all { } }""",
        content=onnx_bytes(),
        versions=[1, 2],
    )
    checked = check_repository([tmp_path], openers=OPENERS)
    at = [
        (Path(str(fault.path)).relative_to(tmp_path).parts[0], fault.field)
        for fault in checked.faults
    ]
    assert at == [
        ("syntax", "nonsense"),
        ("broken", None),
        ("wrong", "input[0].data_type"),
        ("wrong", "input[0].dims"),
    ]
    assert [model.name for model in checked.models] == ["broken", "right", "wrong"]
    assert checked.models[1].config.max_batch_size == 4
    path = f"{tmp_path}/wrong/config.pbtxt"
    assert checked.warnings == [f"{path}: optimization.priority: is not honoured yet"]


def test_check_compares_each_version_with_the_configuration(tmp_path: Path) -> None:
    """A second version of another shape is a fault of its own."""
    write_model(
        tmp_path,
        "m",
        'version_policy { all { } } max_batch_size: 2 input { name: "x" dims: 64 }',
        content=onnx_bytes(),
        extra={"2/model.onnx": onnx_bytes(("n", 65))},
    )
    checked = check_repository([tmp_path], openers=OPENERS)
    assert [fault.field for fault in checked.faults] == ["input[0].dims"]
    assert "[-1, 65]" in checked.faults[0].reason


def test_check_without_the_engine_finds_what_is_wrong_by_itself(tmp_path: Path) -> None:
    """What could be completed where the engine is may be missing; without completion it may not."""
    write_model(
        tmp_path,
        "m",
        'max_batch_size: -1 input { name: "x" } instance_group { kind: KIND_CPU }',
        filename="model.plan",
        content=PLAN,
    )
    checked = check_repository([tmp_path], openers={})
    assert [fault.field for fault in checked.faults] == ["max_batch_size", "instance_group[0].kind"]
    assert ["tensorrt is not installed here" in warning for warning in checked.warnings] == [True]
    strict = check_repository([tmp_path], openers={}, auto_complete=False)
    assert [fault.field for fault in strict.faults] == [
        "max_batch_size",
        "input[0].data_type",
        "input[0].dims",
        "output",
        "instance_group[0].kind",
    ]


def test_check_uses_what_the_engine_says_of_its_profiles(tmp_path: Path) -> None:
    """More rows than the profile takes is a fault before any request comes."""
    write_model(tmp_path, "m", "max_batch_size: 9", filename="model.plan", content=PLAN)
    write_model(tmp_path / "onnx", "signature", content=onnx_bytes())
    signature = ort.open_signature(tmp_path / "onnx" / "signature" / "1" / "model.onnx")
    openers = {"tensorrt_plan": lambda _: Probe(signature, profile_rows=(8,))}
    checked = check_repository([tmp_path], openers=openers)
    assert "takes 8 rows at most" in "".join(map(str, checked.faults))


def test_a_single_file_takes_more_rows_than_a_repository_s_model(tmp_path: Path) -> None:
    """A first look at a model with a dynamic batch serves one row and five."""
    (tmp_path / "m.onnx").write_bytes(onnx_bytes())
    checked = check_repository([], [tmp_path / "m.onnx"], openers=OPENERS)
    assert (checked.faults, checked.warnings, checked.notes) == ([], [], [])
    assert checked.models[0].config.max_batch_size >= 5


def test_check_takes_the_serving_machine_s_gpus(tmp_path: Path) -> None:
    """Nothing is assumed of them unless it is told."""
    write_model(tmp_path, "m", "instance_group { kind: KIND_GPU gpus: 3 }", content=onnx_bytes())
    assert not check_repository([tmp_path], openers=OPENERS).faults
    for facts, reason in (
        (LoadFacts(gpus=()), "no GPU can be used"),
        (LoadFacts(gpus=(0,)), "no GPU 3"),
    ):
        (fault,) = check_repository([tmp_path], openers=OPENERS, facts=facts).faults
        assert reason in fault.reason
