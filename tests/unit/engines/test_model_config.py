"""Completing a configuration from the engine's signature, held to what Triton answers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.engines.base import Signature, TensorSpec
from headrace.engines.model_config import LoadFacts, check, complete, model_spec
from headrace.errors import ConfigError
from headrace_proto.datatypes import DATATYPES
from headrace_proto.v1 import model_config_pb2 as config_pb
from helpers.model_repository import config_of, signature_of

ONNX = 'name: "m" platform: "onnxruntime_onnx" backend: "onnxruntime" '
PLAN = 'name: "m" platform: "tensorrt_plan" backend: "tensorrt" '
DYNAMIC = signature_of("x FP32[?,64]", "y FP32[?,10]")
FIXED = signature_of("x FP32[1,64]", "y FP32[1,10]")


def completed(
    text: str, signature: Signature = DYNAMIC, facts: LoadFacts | None = None, *, auto: bool = True
) -> config_pb.ModelConfig:
    return complete(config_of(text), signature, auto_complete=auto, facts=facts)


def expect(config: config_pb.ModelConfig, text: str) -> None:
    """Compare all but the instance groups, which other tests look at."""
    config.ClearField("instance_group")
    assert config == config_of(text)


DEFAULTS = """
version_policy { latest { num_versions: 1 } }
optimization { input_pinned_memory { enable: true } output_pinned_memory { enable: true } }
"""


def test_an_absent_configuration_is_what_triton_makes_of_the_model() -> None:
    """With dynamic first dimensions: batches of four rows, the dynamic batcher on."""
    whole = """max_batch_size: 4
        input { name: "x" data_type: TYPE_FP32 dims: 64 }
        output { name: "y" data_type: TYPE_FP32 dims: 10 }
        dynamic_batching { preferred_batch_size: 4 }"""
    expect(completed(ONNX), ONNX + DEFAULTS + whole)


@pytest.mark.parametrize(
    "signature",
    [
        FIXED,
        signature_of("x FP32[?,64]", "y FP32[10]"),
        signature_of("x FP32[?,64] s FP32[]", "y FP32[?,10]"),
    ],
)
def test_without_a_dynamic_first_dimension_everywhere_there_is_no_batching(
    signature: Signature,
) -> None:
    """One input or output without it is enough; then dims are whole shapes."""
    config = completed(ONNX, signature)
    assert config.max_batch_size == 0
    assert not config.HasField("dynamic_batching")
    assert list(config.input[0].dims) == [-1 if d is None else d for d in signature.inputs[0].shape]


def test_scalars_have_dims_of_one() -> None:
    """Dims are never empty: with a batch an empty reshape says so, without one the engine knows."""
    batched = completed(ONNX, signature_of("x FP32[?]", "y FP32[?,2]"))
    assert list(batched.input[0].dims) == [1]
    assert batched.input[0].HasField("reshape")
    assert not batched.input[0].reshape.shape
    single = completed(ONNX, signature_of("x FP32[]", "y FP32[2]"))
    assert list(single.input[0].dims) == [1]
    assert not single.input[0].HasField("reshape")


def test_what_is_written_stays_and_what_is_missing_comes() -> None:
    """A partial entry keeps its narrower dims; its type, and the tensors not named, come in."""
    text = ONNX + 'max_batch_size: 2 input { name: "x" dims: 32 }'
    config = completed(text, signature_of("x FP16[?,?]", "y INT64[?] z BYTES[?,2]"))
    assert config.max_batch_size == 2
    assert (
        config.input[0] == config_of('input { name: "x" data_type: TYPE_FP16 dims: 32 }').input[0]
    )
    assert [each.name for each in config.output] == ["y", "z"]
    assert [each.data_type for each in config.output] == [
        config_pb.TYPE_INT64,
        config_pb.TYPE_STRING,
    ]


def test_outputs_that_are_left_out_stay_out() -> None:
    """A configuration may offer fewer outputs than the model has."""
    config = completed(
        ONNX + 'output { name: "z" }', signature_of("x FP32[2]", "y FP32[2] z FP32[2]")
    )
    assert [each.name for each in config.output] == ["z"]


@pytest.mark.parametrize(
    ("given_dims", "max_batch_size"),
    [
        ('input { name: "x" dims: [ -1, 64 ] }', 0),
        ('input { name: "x" dims: 64 }', 4),
        ('input { name: "x" }', 4),
    ],
)
def test_written_dims_say_whether_there_is_a_batch_dimension(
    given_dims: str, max_batch_size: int
) -> None:
    """Dims of the model's whole shape switch batching off, dims without its first one on."""
    assert completed(ONNX + given_dims).max_batch_size == max_batch_size


def test_dims_that_contradict_each_other_are_refused() -> None:
    """Nobody can say whether the first dimension is a batch."""
    text = ONNX + 'input { name: "x" dims: 64 } output { name: "y" dims: [ -1, 10 ] }'
    plan = text.replace(ONNX, PLAN)
    with pytest.raises(ConfigError, match="max_batch_size"):
        completed(plan)


def test_a_whole_configuration_of_an_onnx_model_is_left_alone() -> None:
    """Inputs and outputs written: batching is not switched on behind the user's back."""
    tensors = """input { name: "x" data_type: TYPE_FP32 dims: 64 }
        output { name: "y" data_type: TYPE_FP32 dims: 10 }"""
    config = completed(ONNX + "max_batch_size: 8 " + tensors)
    assert not config.HasField("dynamic_batching")
    # The same with a plan: Triton's TensorRT backend always completes.
    config = completed(PLAN + "max_batch_size: 8 " + tensors)
    assert list(config.dynamic_batching.preferred_batch_size) == [8]


@pytest.mark.parametrize(
    ("facts", "groups", "rows"),
    [
        (LoadFacts(profile_rows=(16,)), "", 16),
        (LoadFacts(profile_rows=(16, 32)), "", 32),
        (LoadFacts(profile_rows=(16, 32)), 'instance_group { profile: "1" }', 32),
        (LoadFacts(profile_rows=(16, 8)), 'instance_group { profile: [ "1", "0" ] }', 16),
        (LoadFacts(profile_rows=(1,)), "", 1),
    ],
)
def test_a_plan_batches_as_far_as_its_profiles_go(facts: LoadFacts, groups: str, rows: int) -> None:
    """The most rows of the profiles in use; the batcher is on for more than one."""
    config = completed(PLAN + groups, facts=facts)
    assert config.max_batch_size == rows
    assert config.HasField("dynamic_batching") == (rows > 1)


def test_a_plan_of_fixed_size() -> None:
    """One row is a batch of one, as Triton has it; more rows are a fixed shape without batching."""
    config = completed(PLAN, FIXED)
    assert (config.max_batch_size, list(config.input[0].dims)) == (1, [64])
    config = completed(PLAN, signature_of("x FP32[8,64]", "y FP32[8,10]"))
    assert (config.max_batch_size, list(config.input[0].dims)) == (0, [8, 64])


def test_a_shape_tensor_gives_its_first_value_to_the_batch() -> None:
    """Its dims count the values without the batch size."""
    signature = signature_of("x FP32[?,3] !s INT32[3]", "y FP32[?,3]")
    config = completed(PLAN, signature, LoadFacts(profile_rows=(8,)))
    assert config.input[1].is_shape_tensor
    assert list(config.input[1].dims) == [2]
    assert not check(config, signature, facts=LoadFacts(profile_rows=(8,)))
    single = completed(PLAN, signature_of("x FP32[2,3] !s INT32[3]", "y FP32[2,3]"))
    assert (single.max_batch_size, list(single.input[1].dims)) == (0, [3])


@pytest.mark.parametrize(("values", "max_batch_size"), [(2, 8), (3, 0)])
def test_a_shape_tensor_s_dims_tell_of_a_batch_too(values: int, max_batch_size: int) -> None:
    """One value less than the engine has leaves the batch size out."""
    signature = signature_of("x FP32[?,3] !s INT32[3]", "y FP32[?,3]")
    text = PLAN + f'input {{ name: "x" }} input {{ name: "s" dims: {values} }}'
    config = completed(text, signature, LoadFacts(profile_rows=(8,)))
    assert config.max_batch_size == max_batch_size


def test_a_shape_tensor_of_any_length_tells_nothing_of_a_batch() -> None:
    """Then the engine decides."""
    signature = signature_of("x FP32[?,3] !s INT32[?]", "y FP32[?,3]")
    text = PLAN + 'input { name: "x" } input { name: "s" dims: 2 }'
    assert completed(text, signature, LoadFacts(profile_rows=(8,))).max_batch_size == 8


@pytest.mark.parametrize(
    "scheduler", ["dynamic_batching { max_queue_delay_microseconds: 5 }", "sequence_batching { }"]
)
def test_a_scheduler_that_is_chosen_stays(scheduler: str) -> None:
    """Completion adds no second one."""
    config = completed(ONNX + scheduler)
    chosen = config.WhichOneof("scheduling_choice")
    assert chosen == scheduler.split(maxsplit=1)[0]
    assert config.dynamic_batching.max_queue_delay_microseconds in (0, 5)


def test_the_default_batch_size_can_be_set() -> None:
    """For a repository, and another for single files; zero switches batching off."""
    assert completed(ONNX, facts=LoadFacts(default_max_batch_size=256)).max_batch_size == 256
    config = completed(ONNX, facts=LoadFacts(default_max_batch_size=0))
    assert (config.max_batch_size, list(config.input[0].dims)) == (0, [-1, 64])


def test_without_auto_completion_only_defaults_come() -> None:
    """Inputs, outputs and batching stay as they are; then they are missing."""
    config = completed(ONNX, auto=False)
    expect(completed(ONNX, auto=False), ONNX + DEFAULTS)
    assert [fault.field for fault in check(config, DYNAMIC)] == ["input", "output"]


def test_the_configuration_that_is_given_is_not_changed() -> None:
    """Completion works on a copy."""
    config = config_of(ONNX)
    complete(config, DYNAMIC, auto_complete=True)
    assert config == config_of(ONNX)


@pytest.mark.parametrize(
    ("written", "gpus", "expected"),
    [
        ("", (), 'name: "m" kind: KIND_CPU count: 3'),
        ("", (0, 1), 'name: "m" kind: KIND_GPU count: 3 gpus: [ 0, 1 ]'),
        ("", None, 'name: "m" count: 3'),
        ("instance_group { count: 2 }", (), 'name: "m_0" kind: KIND_CPU count: 2'),
        ("instance_group { gpus: 1 }", (0, 1), 'name: "m_0" kind: KIND_GPU count: 3 gpus: 1'),
        ("instance_group { gpus: 0 }", (0,), 'name: "m_0" kind: KIND_GPU count: 3 gpus: 0'),
        ("instance_group { gpus: 2 }", (0, 1), 'name: "m_0" kind: KIND_CPU count: 3 gpus: 2'),
        ("instance_group { kind: KIND_GPU }", (0,), 'name: "m_0" kind: KIND_GPU count: 3 gpus: 0'),
        ("instance_group { kind: KIND_CPU }", (0,), 'name: "m_0" kind: KIND_CPU count: 3'),
        ('instance_group { name: "g" kind: KIND_GPU }', (), 'name: "g" kind: KIND_GPU count: 3'),
    ],
)
def test_instance_groups_say_where_the_model_runs(
    written: str, gpus: tuple[int, ...] | None, expected: str
) -> None:
    """KIND_AUTO becomes what there is; a missing count the server's default."""
    config = completed(ONNX + written, facts=LoadFacts(gpus=gpus, num_slots=3))
    assert list(config.instance_group) == list(
        config_of(f"instance_group {{ {expected} }}").instance_group
    )


SIZES = st.one_of(st.none(), st.integers(1, 9))
SPECS = st.builds(
    lambda datatype, shape: (datatype, tuple(shape)),
    st.sampled_from(sorted(DATATYPES)),
    st.lists(SIZES, max_size=4),
)


@st.composite
def signatures(draw: st.DrawFn) -> Signature:
    """Any signature; half of them with a dynamic first dimension everywhere."""
    is_batched = draw(st.booleans())

    def side(letter: str) -> tuple[TensorSpec, ...]:
        specs = draw(st.lists(SPECS, min_size=1, max_size=3))
        return tuple(
            TensorSpec(f"{letter}{i}", datatype, (None, *shape) if is_batched else shape)
            for i, (datatype, shape) in enumerate(specs)
        )

    return Signature(side("x"), side("y"))


FACTS = st.builds(
    LoadFacts,
    gpus=st.sampled_from([None, (), (0,), (0, 1)]),
    num_slots=st.integers(0, 3),
    profile_rows=st.lists(st.integers(1, 16), max_size=2).map(tuple),
    default_max_batch_size=st.integers(0, 8),
)


@st.composite
def partly_written(draw: st.DrawFn, signature: Signature) -> config_pb.ModelConfig:
    """Some of what a user may write about a signature, all of it right."""
    config = config_of(draw(st.sampled_from([ONNX, PLAN])))
    sides = ((config.input, signature.inputs), (config.output, signature.outputs))
    for tensors, specs in sides:
        if draw(st.booleans()):
            for spec in specs:
                tensors.add().name = spec.name
    if draw(st.booleans()):
        config.dynamic_batching.max_queue_delay_microseconds = 1
    return config


@given(st.data(), signatures(), FACTS)
def test_completing_twice_changes_nothing(
    data: st.DataObject, signature: Signature, facts: LoadFacts
) -> None:
    """Whatever was written, the completed configuration is complete."""
    config = data.draw(partly_written(signature))
    once = complete(config, signature, auto_complete=True, facts=facts)
    assert complete(once, signature, auto_complete=True, facts=facts) == once
    assert complete(once, signature, auto_complete=False, facts=facts) == once


@given(st.data(), signatures(), FACTS)
def test_what_completion_makes_has_no_fault(
    data: st.DataObject, signature: Signature, facts: LoadFacts
) -> None:
    """Any signature, nothing wrong written: the configuration passes and shapes lead back."""
    config = data.draw(partly_written(signature))
    whole = complete(config, signature, auto_complete=True, facts=facts)
    faults = [fault for fault in check(whole, signature, facts=facts) if "KIND" not in fault.reason]
    assert not faults
    spec = model_spec(whole, signature, 1)
    for tensor_map, tensor, engine in zip(
        spec.input_maps, spec.inputs, signature.inputs, strict=True
    ):
        client = tuple(5 if size is None else size for size in tensor.shape)
        shape = tensor_map.to_engine(client)
        is_fixed_batch = whole.max_batch_size > 0 and engine.shape[0] is not None
        assert len(shape) == len(engine.shape)
        pairs = list(zip(shape, engine.shape, strict=True))[is_fixed_batch:]
        assert all(theirs in (None, ours) for ours, theirs in pairs)
        assert tensor_map.to_client(shape) == client
