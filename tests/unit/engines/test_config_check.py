"""Every fault of a configuration is found, with its field and a reason that says what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.engines.base import Signature
from headrace.engines.model_config import LoadFacts, check, complete
from helpers.model_repository import config_of, signature_of

ONNX = 'name: "m" platform: "onnxruntime_onnx" backend: "onnxruntime" '
PLAN = 'name: "m" platform: "tensorrt_plan" backend: "tensorrt" '
WEIGHTS = 'parameters { key: "headrace.source_weights" value { string_value: "TEXT" } }'
TARGET = 'parameters { key: "headrace.target_p99_ms" value { string_value: "TEXT" } }'
DYNAMIC = signature_of("x FP32[?,64]", "y FP32[?,10]")
FIXED = signature_of("x FP32[2,64]", "y FP32[2,10]")
SHAPED = signature_of("x FP32[?,3] !s INT32[3]", "y FP32[?,3]")
CPU = LoadFacts(gpus=())
ONE_GPU = LoadFacts(gpus=(0,), profile_rows=(8, 16))


def faults_of(
    text: str, signature: Signature | None = DYNAMIC, facts: LoadFacts = CPU
) -> list[tuple[str, str]]:
    config = config_of(text)
    if signature is not None:
        config = complete(config, signature, auto_complete=True, facts=facts)
    found = check(config, signature, facts=facts, path="m/config.pbtxt", may_be_partial=True)
    assert all(fault.path == "m/config.pbtxt" for fault in found)
    return [(str(fault.field), fault.reason) for fault in found]


@pytest.mark.parametrize(
    ("text", "signature", "facts", "field", "reason"),
    [
        # by itself
        (ONNX + "max_batch_size: -1", DYNAMIC, CPU, "max_batch_size", "-1 is negative"),
        (
            ONNX + "ensemble_scheduling { }",
            DYNAMIC,
            CPU,
            "ensemble_scheduling",
            "goes with platform",
        ),
        (ONNX + "batch_input { }", DYNAMIC, CPU, "batch_input", "not served yet"),
        (ONNX + "batch_output { }", DYNAMIC, CPU, "batch_output", "not served yet"),
        (
            ONNX + "model_transaction_policy { decoupled: true }",
            DYNAMIC,
            CPU,
            "model_transaction_policy.decoupled",
            "not served yet",
        ),
        (ONNX.replace('name: "m"', ""), DYNAMIC, CPU, "name", "is missing"),
        (ONNX.replace("onnxruntime_onnx", "x"), DYNAMIC, CPU, "platform", '"x" is not served'),
        (ONNX + "input { dims: 3 }", None, CPU, "input[0].name", "is missing"),
        (ONNX + 'input { name: "x" dims: [ 2, 0 ] }', None, CPU, "input[0].dims", "0 is not a dim"),
        (ONNX + 'input { name: "x" dims: -2 }', None, CPU, "input[0].dims", "-2 is not a dim"),
        (
            ONNX + 'input { name: "x" dims: 64 format: FORMAT_NCHW }',
            DYNAMIC,
            CPU,
            "input[0].format",
            "there are 1",
        ),
        (
            ONNX + 'input { name: "x" is_non_linear_format_io: true }',
            DYNAMIC,
            CPU,
            "input[0].is_non_linear_format_io",
            "not served yet",
        ),
        (
            ONNX + 'output { name: "y" is_shape_tensor: true }',
            None,
            CPU,
            "output[0].is_shape_tensor",
            "only TensorRT",
        ),
        # reshape
        (
            ONNX + 'input { name: "x" dims: 64 reshape { shape: [ 8, 9 ] } }',
            None,
            CPU,
            "input[0].reshape",
            "[8, 9] does not hold as many elements as dims, [64]",
        ),
        (
            ONNX + 'input { name: "x" dims: [ 2, 4, -1, 6 ] reshape { shape: [ 8, -1, 2, 6 ] } }',
            None,
            CPU,
            "input[0].reshape",
            "does not hold as many",
        ),
        (
            ONNX + 'input { name: "x" dims: [ -1 ] reshape { shape: [ -1, -1 ] } }',
            None,
            CPU,
            "input[0].reshape",
            "does not hold as many",
        ),
        (
            ONNX + 'input { name: "x" dims: [ 1 ] reshape { shape: [ 0 ] } }',
            None,
            CPU,
            "input[0].reshape",
            "0 is not a dimension",
        ),
        (
            ONNX + 'input { name: "x" dims: [ 1 ] reshape { } }',
            None,
            CPU,
            "input[0].reshape",
            "cannot be empty without batching",
        ),
        # against the engine
        (
            ONNX + 'input { name: "x" data_type: TYPE_FP16 }',
            DYNAMIC,
            CPU,
            "input[0].data_type",
            '"x" is TYPE_FP16, but the model has TYPE_FP32',
        ),
        (ONNX + 'input { name: "a" }', DYNAMIC, CPU, "input[0].name", 'no input "a"; it has: x'),
        (ONNX + 'input { name: "a" }', DYNAMIC, CPU, "input", 'the model needs "x"'),
        (ONNX + 'output { name: "a" }', DYNAMIC, CPU, "output[0].name", 'no output "a"; it has: y'),
        (
            ONNX + 'output { name: "y" } output { name: "y" }',
            DYNAMIC,
            CPU,
            "output[1].name",
            "twice",
        ),
        (
            ONNX + 'max_batch_size: 4 input { name: "x" dims: 32 }',
            DYNAMIC,
            CPU,
            "input[0].dims",
            "comes to the shape [-1, 32], but the model has [-1, 64]",
        ),
        (
            ONNX + 'max_batch_size: 4 input { name: "x" dims: -1 }',
            DYNAMIC,
            CPU,
            "input[0].dims",
            "[-1, -1], but the model has [-1, 64]",
        ),
        (
            ONNX + 'max_batch_size: 4 input { name: "x" dims: [ -1, 64 ] }',
            DYNAMIC,
            CPU,
            "input[0].dims",
            "the first is the batch dimension, which dims leave out",
        ),
        (
            ONNX + 'input { name: "x" dims: 64 } output { name: "y" dims: 10 }',
            DYNAMIC,
            CPU,
            "input[0].dims",
            "set max_batch_size",
        ),
        (
            ONNX
            + 'max_batch_size: 4 input { name: "x" dims: [ 8, 8 ] reshape { shape: [ 8, 8 ] } }',
            DYNAMIC,
            CPU,
            "input[0].dims",
            "[-1, 8, 8], but the model has [-1, 64]",
        ),
        (
            ONNX + 'input { name: "x" dims: [ 3, 64 ] }',
            FIXED,
            CPU,
            "input[0].dims",
            "[3, 64], but the model has [2, 64]",
        ),
        (
            ONNX + 'input { name: "x" dims: 2 }',
            signature_of("x FP32[]", "y FP32[]"),
            CPU,
            "input[0].dims",
            "[2], but the model has []",
        ),
        (ONNX + "max_batch_size: 4", FIXED, CPU, "max_batch_size", "no batch dimension"),
        (PLAN + "max_batch_size: 17", DYNAMIC, ONE_GPU, "max_batch_size", "takes 16 rows at most"),
        (PLAN + "max_batch_size: 3", FIXED, ONE_GPU, "max_batch_size", "takes 2 rows at most"),
        (
            PLAN + 'max_batch_size: 9 instance_group { profile: "0" }',
            DYNAMIC,
            ONE_GPU,
            "max_batch_size",
            "takes 8 rows at most",
        ),
        (
            PLAN + 'input { name: "x" is_shape_tensor: true }',
            DYNAMIC,
            ONE_GPU,
            "input[0].is_shape_tensor",
            "is no shape tensor",
        ),
        (
            PLAN + 'max_batch_size: 2 input { name: "x" dims: 3 } input { name: "s" dims: 3 }',
            SHAPED,
            ONE_GPU,
            "input[1].dims",
            "[4], but the model has [3]",
        ),
        # instance groups
        (
            ONNX + "instance_group { count: -1 }",
            DYNAMIC,
            CPU,
            "instance_group[0].count",
            "-1 is neg",
        ),
        (
            ONNX + "instance_group { } instance_group { kind: KIND_GPU }",
            DYNAMIC,
            CPU,
            "instance_group[1].kind",
            "KIND_AUTO takes the CPU",
        ),
        (
            ONNX + "instance_group { kind: KIND_MODEL }",
            DYNAMIC,
            CPU,
            "instance_group[0].kind",
            "not served",
        ),
        (
            PLAN + "instance_group { kind: KIND_CPU }",
            DYNAMIC,
            ONE_GPU,
            "instance_group[0].kind",
            "runs on a GPU only",
        ),
        (PLAN, DYNAMIC, CPU, "instance_group[0].kind", "runs on a GPU only"),
        (
            ONNX + "instance_group { kind: KIND_CPU gpus: 0 }",
            DYNAMIC,
            ONE_GPU,
            "instance_group[0].gpus",
            "KIND_CPU cannot name GPUs",
        ),
        (
            ONNX + "instance_group { kind: KIND_CPU }",
            DYNAMIC,
            ONE_GPU,
            "instance_group[0].kind",
            "is not served beside a GPU yet",
        ),
        (
            ONNX + "instance_group { kind: KIND_GPU gpus: [ 0, 3 ] }",
            DYNAMIC,
            ONE_GPU,
            "instance_group[0].gpus",
            "no GPU 3 that can be used here; there are: 0",
        ),
        (
            ONNX + 'instance_group { profile: "0" }',
            DYNAMIC,
            CPU,
            "instance_group[0].profile",
            "only TensorRT",
        ),
        (
            PLAN + 'instance_group { profile: "2" }',
            DYNAMIC,
            ONE_GPU,
            "instance_group[0].profile",
            "no profile 2; the plan has 2",
        ),
        (
            PLAN + 'instance_group { profile: "-1" }',
            DYNAMIC,
            ONE_GPU,
            "instance_group[0].profile",
            '"-1" is not the index',
        ),
        # dynamic batching
        (
            ONNX + "dynamic_batching { preferred_batch_size: 0 }",
            DYNAMIC,
            CPU,
            "dynamic_batching.preferred_batch_size[0]",
            "0 is not between 1",
        ),
        (
            ONNX + "dynamic_batching { preferred_batch_size: [ 4, 5 ] }",
            DYNAMIC,
            CPU,
            "dynamic_batching.preferred_batch_size[1]",
            "5 is not between 1 and max_batch_size, which is 4",
        ),
        (
            ONNX + "dynamic_batching { priority_levels: 2 }",
            DYNAMIC,
            CPU,
            "dynamic_batching.default_priority_level",
            "0 is not between 1 and priority_levels, 2",
        ),
        *[
            (
                ONNX
                + "dynamic_batching { priority_levels: 1 default_priority_level: 1 "
                + f"priority_queue_policy {{ key: {level} }} }}",
                DYNAMIC,
                CPU,
                f"dynamic_batching.priority_queue_policy[{level}]",
                "no such level",
            )
            for level in (0, 2)
        ],
        (
            ONNX
            + "dynamic_batching { priority_levels: 2 default_priority_level: 1 "
            + "preserve_ordering: true }",
            DYNAMIC,
            CPU,
            "dynamic_batching.preserve_ordering",
            "more than one",
        ),
        (
            ONNX
            + "dynamic_batching { preserve_ordering: true default_queue_policy { "
            + "timeout_action: DELAY default_timeout_microseconds: 1000 } }",
            DYNAMIC,
            CPU,
            "dynamic_batching.preserve_ordering",
            "runs later",
        ),
        (
            ONNX + "dynamic_batching { priority_levels: 257 default_priority_level: 1 }",
            DYNAMIC,
            CPU,
            "dynamic_batching.priority_levels",
            "is 257; at most 256",
        ),
        *[
            (
                ONNX + TARGET.replace("TEXT", text),
                DYNAMIC,
                CPU,
                'parameters["headrace.target_p99_ms"]',
                f'"{text}" is not a number of milliseconds above 0',
            )
            for text in ("", "0", "-1", "nan", "inf", "5 ms")
        ],
        *[
            (
                ONNX + WEIGHTS.replace("TEXT", text),
                DYNAMIC,
                CPU,
                'parameters["headrace.source_weights"]',
                f'"{text}" is not a list of sources and their shares, each from 0.001 to 1000',
            )
            for text in ("a", "=1", "a=", "a=0", "a=1, b=-1", "a=nan", "a=1e4", "a:4")
        ],
        (
            ONNX + 'parameters { key: "headrace.queue_policy" value { string_value: "lifo" } }',
            DYNAMIC,
            CPU,
            'parameters["headrace.queue_policy"]',
            '"lifo" is unknown; expected "fifo" or "latest"',
        ),
    ],
)
def test_a_fault_has_a_field_and_a_reason(
    text: str, signature: Signature | None, facts: LoadFacts, field: str, reason: str
) -> None:
    """Each wrong configuration has a fault for this field that says so."""
    found = faults_of(text, signature, facts)
    assert any(at == field and reason in why for at, why in found), found


@pytest.mark.parametrize(
    ("text", "signature", "facts"),
    [
        (ONNX, DYNAMIC, CPU),
        (ONNX + 'max_batch_size: 32 input { name: "x" dims: 64 }', DYNAMIC, CPU),
        (ONNX + 'input { name: "x" dims: [ 3, 64 ] }', DYNAMIC, CPU),
        (
            ONNX + 'max_batch_size: 4 input { name: "x" dims: [ 8, 8 ] reshape { shape: 64 } }',
            DYNAMIC,
            CPU,
        ),
        (ONNX, signature_of("x FP32[]", "y FP32[]"), CPU),
        (ONNX + "instance_group { kind: KIND_GPU }", DYNAMIC, LoadFacts()),
        (ONNX + "instance_group { count: 2 kind: KIND_CPU }", DYNAMIC, CPU),
        (ONNX + "dynamic_batching { priority_queue_policy { key: 2 } }", DYNAMIC, CPU),
        (ONNX + "dynamic_batching { preserve_ordering: true }", DYNAMIC, CPU),
        (
            ONNX
            + "dynamic_batching { priority_levels: 2 default_priority_level: 2 "
            + "priority_queue_policy { key: 2 } }",
            DYNAMIC,
            CPU,
        ),
        (PLAN, DYNAMIC, ONE_GPU),
        (PLAN, SHAPED, ONE_GPU),
        (PLAN + "max_batch_size: 2", FIXED, ONE_GPU),
        (PLAN + "max_batch_size: 1", signature_of("x FP32[1,3]", "y FP32[1,3]"), ONE_GPU),
        (PLAN + 'max_batch_size: 16 instance_group { profile: [ "0", "1" ] }', DYNAMIC, ONE_GPU),
    ],
)
def test_a_right_configuration_has_no_fault(
    text: str, signature: Signature | None, facts: LoadFacts
) -> None:
    """What Triton's users write passes."""
    assert not faults_of(text, signature, facts)


def test_a_dynamic_reshape_of_equal_trunks_passes() -> None:
    """Between each two dynamic dimensions there are as many elements."""
    reshape = "dims: [ 2, 4, -1, 6 ] reshape { shape: [ 8, -1, 1, 6 ] }"
    text = ONNX + f'max_batch_size: 4 input {{ name: "x" {reshape} }}'
    assert not faults_of(text, signature_of("x FP32[?,8,?,1,6]", "y FP32[?]"))


def test_all_faults_come_at_once_in_the_file_s_order() -> None:
    """Three faults in one configuration are three faults, each time in the same order."""
    text = ONNX + 'input { name: "b" } input { name: "a" } instance_group { count: -1 }'
    signature = signature_of("p FP32[?] q FP32[?] r FP32[?]", "y FP32[?]")
    fields = [field for field, _ in faults_of(text, signature)]
    assert fields[-6:] == [
        "input[0].name",
        "input[1].name",
        "input",
        "input",
        "input",
        "instance_group[0].count",
    ]


def test_label_files_must_be_there_and_inside_the_folder(tmp_path: Path) -> None:
    """A missing file, a path out of the folder and a binary file are faults; a good one is not."""
    (tmp_path / "good.txt").write_text("a\nb\n")
    (tmp_path / "binary.txt").write_bytes(b"\xff\xfe")
    names = ["good.txt", "gone.txt", "../up.txt", "/etc/hostname", "binary.txt"]
    outputs = " ".join(
        f'output {{ name: "{i}" label_filename: "{n}" }}' for i, n in enumerate(names)
    )
    config = config_of(ONNX + outputs)
    found = check(config, None, folder=tmp_path, may_be_partial=True)
    assert [fault.field for fault in found] == [f"output[{i}].label_filename" for i in range(1, 5)]
    reasons = ["No such file", "leads out", "leads out", "not UTF-8"]
    assert all(reason in fault.reason for reason, fault in zip(reasons, found, strict=True))
