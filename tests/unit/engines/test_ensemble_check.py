"""Ensembles by themselves and against their models: what is wrong is told, with its field."""

from __future__ import annotations

import pytest

from headrace.engines.ensemble_check import ensemble_faults, model_faults
from headrace.engines.ensemble_plan import models_of, plan_ensemble
from headrace_proto.v1 import model_config_pb2 as config_pb
from helpers.ensemble_rig import ensemble_text, step_text
from helpers.model_repository import config_of

A = step_text("a", {"x0": "in"}, {"y0": "t"})
B = step_text("b", {"x0": "t"}, {"y0": "out"})


def faults_of(text: str) -> list[tuple[str | None, str]]:
    config = config_of(f'name: "e" {text}')
    return [(fault.field, fault.reason) for fault in ensemble_faults(config)]


def text(*steps: str, more: str = "") -> str:
    return ensemble_text(["in"], ["out"], steps, more=more)


def test_a_good_one_has_a_plan() -> None:
    """Tensors by name, the ensemble's inputs first; who reads what, and how often it is needed."""
    c = step_text("c", {"x0": "t", "x1": "t", "x2": "in"}, {"y0": "other"})
    config = config_of(f'name: "e" {ensemble_text(["in"], ["out", "t", "other"], [A, B, c])}')
    assert [str(fault) for fault in ensemble_faults(config)] == []
    plan = plan_ensemble(config)
    assert plan.tensors == ("in", "t", "out", "other")
    assert plan.outputs == (2, 1, 3)
    assert plan.readers == ((0, 2), (1, 2), (), ())
    assert plan.num_uses == (2, 3, 1, 1)
    assert plan.num_needed == (1, 1, 2)
    assert [step.version for step in plan.steps] == ["", "", ""]
    assert plan.where(2) == "in ensemble 'e', step 2 (model 'c')"
    assert models_of(config) == ["a", "b", "c"]
    assert models_of(config_of('name: "m"')) == []


@pytest.mark.parametrize(
    ("wrong", "field", "reason"),
    [
        (ensemble_text([], ["out"], [A, B]), "input", "is missing"),
        (ensemble_text(["in"], [], [A, B]), "output", "is missing"),
        (ensemble_text(["in"], ["out"], []), "ensemble_scheduling.step", "at least one step"),
        (text(A, B, more="instance_group { count: 2 }"), "instance_group", "no slots of its own"),
        (text(A, B).replace("max_batch_size: 8", "max_batch_size: -1"), "max_batch_size", "-1"),
        (text(A.replace('"a"', '""'), B), "ensemble_scheduling.step[0].model_name", "is missing"),
        (text(A.replace('"a"', '"e"'), B), "ensemble_scheduling.step[0].model_name", "own name"),
        (text(A.replace("-1", "-2", 1), B), "ensemble_scheduling.step[0].model_version", "-2"),
        (
            text(step_text("a", {}, {"y0": "t"}), B),
            "ensemble_scheduling.step[0].input_map",
            "is missing",
        ),
        (
            text(A, step_text("b", {"x0": "t"}, {})),
            "ensemble_scheduling.step[1].output_map",
            "is missing",
        ),
        (
            text(A, B.replace("step {", 'step { model_namespace: "n"')),
            "ensemble_scheduling.step[1].model_namespace",
            "not served",
        ),
        (
            text(A, B, step_text("c", {"x0": "t"}, {"y0": "out"})),
            'ensemble_scheduling.step[2].output_map["y0"]',
            '"out" is written by step 1 already',
        ),
        (
            text(A, B, step_text("c", {"x0": "t"}, {"y0": "in"})),
            'ensemble_scheduling.step[2].output_map["y0"]',
            "nothing may write it",
        ),
        (
            text(A, B.replace('"t"', '"nothing"')),
            'ensemble_scheduling.step[1].input_map["x0"]',
            "no step writes it",
        ),
        (text(A, B.replace('"out"', '"u"')), "output[0].name", 'no step writes "out"'),
        (ensemble_text(["in", "no"], ["out"], [A, B]), "input[1].name", 'no step reads "no"'),
        (
            text(A, B, step_text("c", {"x0": "t"}, {"y0": "u"})),
            "ensemble_scheduling.step[2].output_map",
            '"u" is needed by nobody',
        ),
        (
            text(
                step_text("a", {"x0": "in", "x1": "u"}, {"y0": "t"}),
                step_text("b", {"x0": "t"}, {"y0": "out", "y1": "v"}),
                step_text("c", {"x0": "v"}, {"y0": "u"}),
            ),
            "ensemble_scheduling.step",
            "steps 0, 1, 2 wait for one another",
        ),
    ],
)
def test_what_is_wrong_by_itself(wrong: str, field: str, reason: str) -> None:
    """The field and the reason, and that alone."""
    found = faults_of(wrong)
    assert any(at == field and reason in why for at, why in found), found


def model(name: str, inputs: str, outputs: str, rows: int = 8) -> config_pb.ModelConfig:
    """A model's configuration; tensors as `x0 FP32 4,-1`."""
    tensors = ""
    for side, listed in (("input", inputs), ("output", outputs)):
        for tensor in filter(None, listed.split(";")):
            of, kind, dims = tensor.split()
            tensors += f'{side} {{ name: "{of}" data_type: TYPE_{kind} dims: [ {dims} ] }}'
    return config_of(f'name: "{name}" max_batch_size: {rows} {tensors}')


@pytest.mark.parametrize(
    ("first", "second", "field", "reason"),
    [
        (("x0 UINT8 4", "y0 FP32 3"), ("x0 FP32 3", "y0 UINT8 4"), None, ""),
        (("x0 UINT8 -1", "y0 FP32 3"), ("x0 FP32 -1", "y0 UINT8 2"), None, ""),
        (
            ("x0 FP32 4", "y0 FP32 3"),
            ("x0 FP32 3", "y0 UINT8 4"),
            'ensemble_scheduling.step[0].input_map["x0"]',
            "tensor \"in\": TYPE_UINT8 in the ensemble, but TYPE_FP32 in model 'a'",
        ),
        (
            ("x0 UINT8 4", "y0 FP32 3"),
            ("x0 FP32 5", "y0 UINT8 4"),
            'ensemble_scheduling.step[1].input_map["x0"]',
            "[-1, 3] in model 'a', but [-1, 5] in model 'b'",
        ),
        (
            ("x0 UINT8 4;x1 UINT8 4", "y0 FP32 3"),
            ("x0 FP32 3", "y0 UINT8 4"),
            "ensemble_scheduling.step[0].input_map",
            "input 'x1' of model 'a' is given no tensor",
        ),
        (
            ("x UINT8 4", "y0 FP32 3"),
            ("x0 FP32 3", "y0 UINT8 4"),
            'ensemble_scheduling.step[0].input_map["x0"]',
            "model 'a' has no such input; it has: x",
        ),
        (
            ("x0 UINT8 4", "y FP32 3"),
            ("x0 FP32 3", "y0 UINT8 4"),
            'ensemble_scheduling.step[0].output_map["y0"]',
            "model 'a' has no such output; it has: y",
        ),
    ],
)
def test_what_does_not_fit(
    first: tuple[str, str], second: tuple[str, str], field: str | None, reason: str
) -> None:
    """Names, datatypes and shapes; sizes that may be anything are left to the run."""
    config = config_of(f'name: "e" {text(A, B)}')
    found = list(model_faults(config, [model("a", *first), model("b", *second)]))
    if field is None:
        assert found == []
    else:
        assert any(at == field and reason in why for at, why in found), found


def test_rows() -> None:
    """No more than each model takes; one without a batch dimension takes the whole tensor."""
    config = config_of(f'name: "e" {text(A, B)}')
    whole = model("b", "x0 UINT8 -1,4", "y0 UINT8 -1,4", rows=0)
    fits = model("a", "x0 UINT8 4", "y0 UINT8 4")
    assert list(model_faults(config, [fits, whole])) == []
    few = model("a", "x0 UINT8 4", "y0 UINT8 4", rows=4)
    (fault,) = model_faults(config, [few, whole])
    assert fault == ("max_batch_size", "is 8, but model 'a' takes 4 rows at most")
