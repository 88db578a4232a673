"""What a configuration says of sequences, and what is wrong with it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from headrace.engines.base import Signature
from headrace.engines.batching_spec import BatchingSpec
from headrace.engines.initial_state import read_initial_states
from headrace.engines.model_config import check, complete, model_spec
from headrace.engines.model_spec import ModelSpec
from headrace.engines.sequence_spec import SequenceSpec
from headrace.errors import ConfigError, RequestError
from headrace_proto.v1 import model_config_pb2 as config_pb
from helpers.model_repository import config_of, signature_of

ONNX = 'name: "m" platform: "onnxruntime_onnx" backend: "onnxruntime" '
ROWS = signature_of(
    "START INT32[?,1] x FP32[?,3] had FP32[?,?] ID INT32[?,1]", "has FP32[?,?] y FP32[?,3]"
)
ALONE = signature_of("x FP32[3] had INT64[2]", "y FP32[3] has INT64[2]")
STATE = 'input_name: "had" output_name: "has" data_type: TYPE_FP32 dims: [ -1 ] '
CONTROLS = """
  control_input { name: "START" control { kind: CONTROL_SEQUENCE_START int32_false_true: [0, 1] } }
  control_input { name: "ID" control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_INT32 } }
"""


def batching(state: str = STATE, more: str = "direct { }") -> str:
    return f"sequence_batching {{ {CONTROLS} {more} state {{ {state} }} }}"


def completed(text: str, signature: Signature = ROWS) -> config_pb.ModelConfig:
    return complete(config_of(ONNX + text), signature, auto_complete=True)


def spec_of(text: str, signature: Signature = ROWS) -> ModelSpec:
    config = completed(text, signature)
    assert [str(fault) for fault in check(config, signature)] == []
    return model_spec(config, signature, 1)


def sequence_of(text: str, signature: Signature = ROWS) -> SequenceSpec:
    sequence = spec_of(text, signature).sequence
    assert sequence is not None
    return sequence


def faults(text: str, signature: Signature = ROWS, folder: Path | None = None) -> list[str]:
    return [str(each) for each in check(completed(text, signature), signature, folder=folder)]


def test_what_is_hidden_is_no_input_or_output_of_clients() -> None:
    """The rest is completed from the engine as ever, and each knows its place there."""
    config = completed(batching())
    assert [each.name for each in config.input] == ["x"]
    assert [each.name for each in config.output] == ["y"]
    assert config.sequence_batching.max_sequence_idle_microseconds == 1_000_000
    assert complete(config, ROWS, auto_complete=True) == config
    spec = spec_of(batching())
    assert [each.name for each in spec.inputs] == ["x"]
    assert spec.sequence is not None
    assert (spec.sequence.idle_s, spec.sequence.max_candidates) == (1.0, 0)
    assert [(each.fact, each.index) for each in spec.sequence.controls] == [("start", 0), ("id", 3)]
    (state,) = spec.sequence.states
    assert (state.index, state.output_index, state.shape, state.initial) == (2, 0, (1,), bytes(4))


def test_a_state_that_is_listed_is_an_output_too() -> None:
    """For debugging, as in Triton."""
    text = batching() + 'output { name: "y" } output { name: "has" }'
    assert [each.name for each in spec_of(text).outputs] == ["y", "has"]


def test_without_sequences_there_is_nothing_of_them() -> None:
    """Models that keep no state."""
    assert spec_of("", signature_of("x FP32[?,3]", "y FP32[?,3]")).sequence is None


@pytest.mark.parametrize(
    ("state", "signature", "shape"),
    [
        (STATE, ROWS, (1,)),  # nothing says it
        (STATE.replace("-1", "5"), ROWS, (5,)),
        (STATE.replace("_FP32", "_INT64"), ALONE, (2,)),  # the model does
        (
            STATE + 'initial_state { name: "z" data_type: TYPE_FP32 dims: [7] zero_data: true }',
            ROWS,
            (7,),
        ),
    ],
)
def test_the_shape_of_a_state(state: str, signature: Signature, shape: tuple[int, ...]) -> None:
    """The configuration's, else the model's, else what it starts with, else ones."""
    more = "max_batch_size: 0" if signature is ALONE else ""
    text = f"{more} sequence_batching {{ state {{ {state} }} }}" if more else batching(state)
    (kept,) = sequence_of(text, signature).states
    assert kept.shape == shape
    assert not any(kept.initial)


def test_hidden_inputs_join_those_of_clients_where_the_engine_has_them() -> None:
    """Shapes and sizes of a call, and the values of a request of one row."""
    sequence = sequence_of(batching(STATE.replace("-1", "5")))
    shapes = sequence.shapes([(2, 3)])
    assert shapes == ((2, 1), (2, 3), (2, 5), (2, 1))
    assert sequence.sizes(shapes, [24]) == (8, 24, 40, 8)
    one, seven = (np.int32(value).tobytes() for value in (1, 7))
    values = sequence.values(7, is_start=True, is_end=False)
    assert values == ((0, one), (2, b""), (3, seven))
    assert sequence.values(7, is_start=False, is_end=False)[0] == (0, bytes(4))
    trial = sequence.trial([b"x" * 24], 2)
    assert trial == [one * 2, b"x" * 24, bytes(40), one * 2]


@pytest.mark.parametrize(
    ("datatype", "value", "expected"),
    [
        ("INT32", -1, np.int32(-1).tobytes()),
        ("INT32", 2**31, "takes it as INT32"),
        ("UINT32", -1, "takes it as UINT32"),
        ("INT64", -(2**63), np.int64(-(2**63)).tobytes()),
        ("UINT64", -1, np.uint64(2**64 - 1).tobytes()),  # as the protocol carries it
        ("INT32", "seven", "send a number"),
    ],
)
def test_ids_are_told_as_the_model_takes_them(
    datatype: str, value: int | str, expected: bytes | str
) -> None:
    """What does not fit is the caller's fault, and is not cut."""
    text = batching().replace("TYPE_INT32 } }", f"TYPE_{datatype} }} }}")
    words = " ".join(f"{each.name} {each.datatype}[?,1]" for each in ROWS.inputs[:1])
    signature = signature_of(
        f"{words} x FP32[?,3] had FP32[?,?] ID {datatype}[?,1]", "has FP32[?,?] y FP32[?,3]"
    )
    sequence = sequence_of(text, signature)
    if isinstance(expected, bytes):
        assert dict(sequence.values(value, is_start=True, is_end=True))[3] == expected
    else:
        with pytest.raises(RequestError, match=expected):
            sequence.values(value, is_start=True, is_end=True)


@pytest.mark.parametrize(
    ("more", "policy"),
    [
        ("direct { }", BatchingSpec(max_rows=8)),
        ("direct { max_queue_delay_microseconds: 500 }", BatchingSpec(max_rows=8)),
        (
            "direct { max_queue_delay_microseconds: 500 minimum_slot_utilization: 0.4 }",
            BatchingSpec(max_rows=8, max_delay_s=0.0005),
        ),
        (
            """oldest { max_candidate_sequences: 5 preferred_batch_size: [ 4, 2 ]
            max_queue_delay_microseconds: 100 preserve_ordering: true }""",
            BatchingSpec(
                max_rows=8, preferred_rows=(2, 4), max_delay_s=0.0001, preserve_ordering=True
            ),
        ),
        ("oldest { }", BatchingSpec(max_rows=8, preferred_rows=(8,))),
    ],
)
def test_strategies_say_how_sequences_run_together(more: str, policy: BatchingSpec) -> None:
    """`direct` waits for a share of the slots, `oldest` as dynamic batching does."""
    spec = spec_of("max_batch_size: 8 " + batching(more=more))
    assert spec.batching == policy
    assert spec.sequence is not None
    assert spec.sequence.least_rows == (4 if "utilization" in more else 0)


INITIAL = 'initial_state { name: "z" data_type: TYPE_FP32 dims: [ 2 ] data_file: "first" } '


def test_states_start_with_what_a_file_says(tmp_path: Path) -> None:
    """Of the folder that Triton looks into; the file is as long as the state."""
    (tmp_path / "initial_state").mkdir()
    data = np.arange(2, dtype=np.float32).tobytes()
    (tmp_path / "initial_state/first").write_bytes(data)
    config = completed(batching(STATE + INITIAL))
    assert [str(fault) for fault in check(config, ROWS, folder=tmp_path)] == []
    initial = read_initial_states(config, tmp_path)
    sequence = model_spec(config, ROWS, 1, initial_states=initial).sequence
    assert sequence is not None
    assert (sequence.states[0].initial, sequence.state_bytes) == (data, 8)
    (tmp_path / "initial_state/first").write_bytes(data + b"more")
    with pytest.raises(ConfigError, match=r"state\[0\].initial_state\[0\].data_file.*expected 8"):
        read_initial_states(config, tmp_path)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (batching(more="iterative_sequence: true"), "iterative_sequence: requests that run again"),
        (batching(STATE + "use_growable_memory: true"), "states that grow are not served"),
        (
            batching()
            + 'parameters { key: "headrace.queue_policy" value { string_value: "fifo" } }',
            "cannot be had together",
        ),
        (batching(more="direct { minimum_slot_utilization: 1.5 }"), "1.5 is not between 0 and 1"),
        (batching(more="oldest { max_candidate_sequences: -1 }"), "-1 is negative"),
        (batching(more="oldest { preferred_batch_size: 9 }"), "9 is not between 1 and"),
        (batching() + 'input { name: "x" } input { name: "had" }', 'is in "input" too'),
        (batching(STATE.replace('"had"', '"START"')), '"START" is there twice'),
        (batching(STATE.replace('"has"', '"nothing"')), 'the model has no "nothing"'),
        (batching(STATE.replace('"has"', '"y"')), '"y" comes to the shape'),
        (batching(STATE.replace("FP32", "FP16")), '"had" is TYPE_FP16, but the model has'),
        (batching(STATE.replace("FP32", "STRING")), "states of strings are not served"),
        (batching(STATE.replace("[ -1 ]", "[ 0 ]")), "0 is not a dimension"),
        (batching(STATE.replace("dims: [ -1 ]", "")), "dims: is missing"),
        (batching(STATE.replace('input_name: "had"', "")), "input_name: is missing"),
        (batching().replace('"START"', '"nobody"'), 'the model has no "nobody"'),
        (batching().replace("int32_false_true", "fp32_false_true"), '"START" is TYPE_FP32'),
        (batching().replace("[0, 1]", "[0]"), "of two values"),
        (batching().replace("TYPE_INT32", "TYPE_STRING"), "is TYPE_STRING; expected one of"),
        (
            batching().replace("CORRID data_type: TYPE_INT32", "START int32_false_true: [0, 1]"),
            "more than one",
        ),
        (batching().replace("int32_false_true: [0, 1] }", "} control { }"), "has 2 entries"),
        (batching(STATE + INITIAL + INITIAL), "has 2 entries, expected one at most"),
        (batching(STATE + INITIAL.replace("FP32", "INT32")), "but the state is TYPE_FP32"),
        (batching(STATE + INITIAL.replace("[ 2 ]", "[ 2, 2 ]")), "do not fit the state's dims"),
        (batching(STATE + INITIAL.replace("[ 2 ]", "[ -1 ]")), "each must be 1 or more"),
        (batching(STATE + INITIAL.replace('data_file: "first"', "")), "needs zero_data: true"),
        (batching(STATE + INITIAL), '"initial_state/first" cannot be read: No such file'),
        (batching(STATE + INITIAL.replace("first", "../x")), "leads out of the model's folder"),
        (batching().replace('"had"', '"gone"'), 'the model has no "gone"'),
    ],
)
def test_what_is_wrong_is_named(text: str, expected: str, tmp_path: Path) -> None:
    """By field, with what was expected."""
    told = faults(text, folder=tmp_path)
    assert any(expected in each for each in told), told


def test_faults_stand_at_their_fields() -> None:
    """As the file spells them."""
    told = check(completed(batching(STATE.replace('"has"', '"y"'))), ROWS)
    assert [fault.field for fault in told] == ["sequence_batching.state[0].output_name"]
