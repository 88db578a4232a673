"""What a completed configuration says to the front door and the scheduler."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.engines.base import Signature, TensorSpec
from headrace.engines.labels import read_labels
from headrace.engines.model_config import (
    Instances,
    LoadFacts,
    ModelSpec,
    TensorMap,
    complete,
    model_spec,
)
from headrace.errors import ConfigError, EngineError
from helpers.model_repository import config_of, signature_of

ONNX = 'name: "m" platform: "onnxruntime_onnx" backend: "onnxruntime" '
PLAN = 'name: "m" platform: "tensorrt_plan" backend: "tensorrt" '
DYNAMIC = signature_of("x FP32[?,64]", "y FP32[?,10]")


def spec_of(text: str, signature: Signature = DYNAMIC, facts: LoadFacts | None = None) -> ModelSpec:
    config = complete(config_of(text), signature, auto_complete=True, facts=facts)
    return model_spec(config, signature, 3)


def test_shapes_are_the_client_s_with_the_batch_first() -> None:
    """With batching the first dimension is any; without it shapes are as written."""
    spec = spec_of(ONNX)
    assert (spec.name, spec.version, spec.max_batch_size) == ("m", 3, 4)
    assert spec.inputs == (TensorSpec("x", "FP32", (None, 64)),)
    assert spec.outputs == (TensorSpec("y", "FP32", (None, 10)),)
    assert spec_of(ONNX + 'input { name: "x" dims: [ 5, 64 ] }').inputs[0].shape == (5, 64)


def test_tensors_keep_the_configuration_s_order_and_lead_to_the_engine_s() -> None:
    """Outputs that the configuration leaves out are not offered."""
    signature = signature_of("a FP32[?,1] b INT64[?,2]", "p FP32[?,3] q FP32[?,4] r BYTES[?,5]")
    text = (
        ONNX + 'input { name: "b" } input { name: "a" } output { name: "r" } output { name: "p" }'
    )
    spec = spec_of(text + " max_batch_size: 2", signature)
    assert [each.name for each in spec.inputs] == ["b", "a"]
    assert [each.index for each in spec.input_maps] == [1, 0]
    assert [(each.name, each.datatype) for each in spec.outputs] == [("r", "BYTES"), ("p", "FP32")]
    assert [each.index for each in spec.output_maps] == [2, 0]


def test_without_a_reshape_shapes_pass_through() -> None:
    """The very object: nothing is done for the common case."""
    (tensor_map,) = spec_of(ONNX).input_maps
    shape = (5, 64)
    assert tensor_map.engine is None
    assert tensor_map.to_engine(shape) is shape
    assert tensor_map.to_client(shape) is shape


def test_a_reshape_leads_both_ways() -> None:
    """The example of Triton's documentation, with its batch dimension."""
    text = (
        ONNX
        + 'max_batch_size: 8 input { name: "x" '
        + "dims: [ 2, 4, -1, 6 ] reshape { shape: [ 8, -1, 1, 6 ] } }"
    )
    spec = spec_of(text, signature_of("x FP32[?,8,?,1,6]", "y FP32[?]"))
    assert spec.inputs[0].shape == (None, 2, 4, None, 6)
    assert spec.input_maps[0].to_engine((3, 2, 4, 7, 6)) == (3, 8, 7, 1, 6)
    assert spec.outputs[0].shape == (None, 1)
    assert spec.output_maps[0].to_client((3,)) == (3, 1)


def test_a_scalar_without_batching_is_seen_as_one_element() -> None:
    """The engine's shape is empty, the client's is not."""
    spec = spec_of(ONNX, signature_of("x FP32[]", "y FP32[]"))
    assert spec.inputs[0].shape == (1,)
    assert spec.input_maps[0].to_engine((1,)) == ()
    assert spec.output_maps[0].to_client(()) == (1,)


def test_a_shape_tensor_has_no_batch_dimension() -> None:
    """The client sends all its values, the batch size first."""
    signature = signature_of("x FP32[?,3] !s INT32[3]", "y FP32[?,3]")
    spec = spec_of(PLAN, signature, LoadFacts(profile_rows=(8,)))
    assert spec.inputs[1] == TensorSpec("s", "INT32", (3,), is_shape_tensor=True)
    assert spec.input_maps[1].engine is None


@pytest.mark.parametrize("shape", [(3, 1), (), (3, 2, 1)])
def test_an_engine_s_shape_that_does_not_fit_is_an_engine_error(shape: tuple[int, ...]) -> None:
    """An output is never sent under a shape that is not its own."""
    tensor_map = TensorMap(0, client=(None, 1, 2), engine=(None, 2))
    with pytest.raises(EngineError, match="the configuration says"):
        tensor_map.to_client(shape)


@given(st.lists(st.none() | st.integers(1, 4), max_size=5), st.data())
def test_reshapes_keep_the_elements_and_lead_back(
    pattern: list[int | None], data: st.DataObject
) -> None:
    """Any pattern and the same with dimensions of one put in: numpy reshapes as we say."""
    client = tuple(pattern)
    engine = list(client)
    for _ in range(data.draw(st.integers(0, 3))):
        engine.insert(data.draw(st.integers(0, len(engine))), 1)
    tensor_map = TensorMap(0, client, tuple(engine))
    shape = tuple(data.draw(st.integers(0, 5)) if size is None else size for size in client)
    array = np.empty(shape, np.uint8)
    assert array.reshape(tensor_map.to_engine(shape)).size == array.size
    assert tensor_map.to_client(tensor_map.to_engine(shape)) == shape


@pytest.mark.parametrize(
    ("groups", "facts", "instances"),
    [
        ("", LoadFacts(gpus=()), (Instances(None, 0),)),
        ("", LoadFacts(gpus=(), num_slots=4), (Instances(None, 4),)),
        ("", LoadFacts(gpus=(0, 1), num_slots=2), (Instances(0, 2), Instances(1, 2))),
        ("instance_group { count: 3 }", LoadFacts(gpus=()), (Instances(None, 3),)),
        (
            """instance_group { kind: KIND_GPU gpus: [ 1, 0 ] }
            instance_group { count: 2 kind: KIND_GPU gpus: 1 }
            instance_group { kind: KIND_CPU }""",
            LoadFacts(gpus=(0, 1), num_slots=1),
            (Instances(None, 1), Instances(0, 1), Instances(1, 3)),
        ),
    ],
)
def test_slots_are_summed_up_by_device(
    groups: str, facts: LoadFacts, instances: tuple[Instances, ...]
) -> None:
    """Groups on the same device add up; GPUs that a group does not name are all of them."""
    spec = spec_of(ONNX + groups, facts=facts)
    assert spec.instances == instances
    assert spec.num_slots == instances[0].num_slots


def test_profiles_are_those_of_all_groups() -> None:
    """In ascending order, each once."""
    groups = 'instance_group { profile: [ "10", "2" ] } instance_group { profile: "2" }'
    spec = spec_of(PLAN + groups, facts=LoadFacts(gpus=(0,)))
    assert spec.profiles == (2, 10)
    assert spec_of(PLAN, facts=LoadFacts(gpus=(0,))).profiles == ()


def test_optional_inputs_and_parameters_are_passed_on() -> None:
    """As the configuration has them."""
    spec = spec_of(
        ONNX
        + 'input { name: "x" optional: true }'
        + 'parameters { key: "k" value { string_value: "v" } }'
        + 'parameters { key: "a" value { string_value: "b" } }'
    )
    assert spec.optional_inputs == {"x"}
    assert list(spec.parameters.items()) == [("a", "b"), ("k", "v")]
    assert spec_of(ONNX).parameters == {}


def test_labels_are_lines(tmp_path: Path) -> None:
    """In class order; an empty line is a label, the last line break is none."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "l.txt").write_bytes(b"nul\r\n\n eins \n")
    config = config_of(
        ONNX + 'output { name: "y" label_filename: "sub/l.txt" } output { name: "z" }'
    )
    assert read_labels(config, tmp_path) == {"y": ("nul", "", " eins ")}
    (tmp_path / "sub" / "l.txt").unlink()
    with pytest.raises(ConfigError, match="No such file"):
        read_labels(config, tmp_path)
