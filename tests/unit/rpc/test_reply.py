"""Replies, held against protobuf's own parser."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import EngineError, RequestError
from headrace.model import ServedModel
from headrace.rpc import reply as reply_module
from headrace.rpc.reply import ReplyWriter, in_band_error, writer_of
from headrace.slots.batch import Output
from headrace_proto.v1 import inference_pb2 as pb
from helpers.served import served

PLENTY = 1 << 31
ids = st.text(alphabet=st.characters(codec="utf-8"), max_size=200)
dims = st.integers(0, 300)


def model(num_outputs: int = 3, config: str = "") -> ServedModel:
    outputs = " ".join(f"out{index} UINT8[?,?]" for index in range(num_outputs))
    return served("x UINT8[?,?]", outputs, config, name="größe", version=12)


def parsed(message: bytes) -> pb.ModelInferResponse:
    return pb.ModelInferResponse.FromString(message)


@given(
    request_id=ids,
    shapes=st.lists(st.tuples(dims, dims), min_size=3, max_size=3),
    wanted=st.permutations([0, 1, 2]).flatmap(
        lambda order: st.integers(1, 3).map(lambda count: order[:count])
    ),
)
@settings(deadline=None)
def test_protobuf_reads_what_was_written(
    request_id: str, shapes: list[tuple[int, int]], wanted: list[int]
) -> None:
    """Names, shapes, the id and the bytes come out as they went in, in the order asked for."""
    generator = np.random.default_rng(1)
    data = [generator.bytes(rows * columns) for rows, columns in shapes]
    outputs: list[Output] = [
        (shape, memoryview(raw)) for shape, raw in zip(shapes, data, strict=True)
    ]
    message = ReplyWriter(model(), wanted, PLENTY).write(request_id, outputs)
    answer = parsed(message)
    expected = pb.ModelInferResponse(
        model_name="größe",
        model_version="12",
        id=request_id,
        outputs=[
            pb.ModelInferResponse.InferOutputTensor(
                name=f"out{index}", datatype="UINT8", shape=shapes[index]
            )
            for index in wanted
        ],
        raw_output_contents=[data[index] for index in wanted],
    )
    assert answer == expected
    assert len(message) == expected.ByteSize()


@given(st.lists(st.tuples(ids, st.tuples(dims, dims)), min_size=1, max_size=8))
@settings(deadline=None)
def test_one_writer_writes_many_replies(replies: list[tuple[str, tuple[int, int]]]) -> None:
    """What is kept from one reply never shows in the next: shapes change, ids come and go."""
    writer = ReplyWriter(model(1), [0], PLENTY)
    for number, (request_id, shape) in enumerate(replies):
        raw = bytes([number]) * (shape[0] * shape[1])
        answer = parsed(writer.write(request_id, [(shape, raw)]))
        assert (answer.id, tuple(answer.outputs[0].shape)) == (request_id, shape)
        assert list(answer.raw_output_contents) == [raw]
        assert len(answer.outputs) == 1


def test_equal_sizes_of_other_shapes_are_told_apart() -> None:
    """Six bytes are [2, 3] or [3, 2]; the size alone does not say."""
    writer = ReplyWriter(model(1), [0], PLENTY)
    shapes = [(2, 3), (3, 2), (6, 1), (2, 3)]
    seen = [parsed(writer.write("", [(shape, bytes(6))])).outputs[0].shape for shape in shapes]
    assert [tuple(shape) for shape in seen] == shapes


def test_bytes_outputs_of_changing_size_keep_their_shape() -> None:
    """A BYTES tensor has any size for one shape."""
    writer = ReplyWriter(served("x BYTES[?,1]", "y BYTES[?,1]"), [0], PLENTY)
    for raw in (b"\1\0\0\0a", b"\5\0\0\0abcde", b"\0\0\0\0"):
        answer = parsed(writer.write("", [((1, 1), raw)]))
        assert list(answer.raw_output_contents) == [raw]
        assert (answer.outputs[0].datatype, list(answer.outputs[0].shape)) == ("BYTES", [1, 1])


def test_a_scalar_and_an_empty_tensor_have_their_entries() -> None:
    """Clients read raw contents by position, so an empty one is there too."""
    scalar = served("x FP32[]", "s FP32[] e FP32[?]", shapes_of=lambda _: ((), (0,)))
    answer = parsed(ReplyWriter(scalar, [1, 0], PLENTY).write("", [((), b"abcd"), ((0,), b"")]))
    assert [list(output.shape) for output in answer.outputs] == [
        [0],
        [1],
    ]  # no dims: [1], as Triton
    assert list(answer.raw_output_contents) == [b"", b"abcd"]


def test_outputs_in_the_configuration_s_order_come_from_the_engine_s_places() -> None:
    """The configuration may list outputs in another order than the engine has them."""
    config = 'max_batch_size: 4 output { name: "out2" } output { name: "out0" }'
    outputs: Sequence[Output] = [((1, 1), bytes([index])) for index in range(3)]
    answer = parsed(ReplyWriter(model(3, config), [0, 1], PLENTY).write("", outputs))
    assert [output.name for output in answer.outputs] == ["out2", "out0"]
    assert list(answer.raw_output_contents) == [b"\2", b"\0"]


RESHAPED = "max_batch_size: 8 " + "".join(
    f'{way} {{ name: "{name}" data_type: TYPE_FP32 dims: [ 1 ] reshape {{ shape: [] }} }} '
    for way, name in (("input", "x"), ("output", "y"))
)


def test_reshaped_outputs_have_the_client_s_shape() -> None:
    """The engine's [5] is the client's [5, 1]."""
    writer = ReplyWriter(served("x FP32[?]", "y FP32[?]", RESHAPED), [0], PLENTY)
    assert list(parsed(writer.write("", [((5,), bytes(20))])).outputs[0].shape) == [5, 1]


def test_an_engine_that_breaks_the_configuration_s_word_is_told_of() -> None:
    """An output that cannot have the promised shape is an error, not a wrong answer."""
    writer = ReplyWriter(served("x FP32[?]", "y FP32[?]", RESHAPED), [0], PLENTY)
    with pytest.raises(EngineError, match="configuration says"):
        writer.write("", [((5, 2), bytes(40))])
    assert parsed(writer.write("", [((5,), bytes(20))])).outputs[0].shape == [5, 1]


@given(size=st.integers(0, 4000), request_id=ids, limit=st.integers(1, 4200))
@settings(deadline=None)
def test_no_reply_is_larger_than_the_limit(size: int, request_id: str, limit: int) -> None:
    """The limit is of the whole message, id and names included, as gRPC counts it."""
    writer = ReplyWriter(model(1), [0], limit)
    outputs: Sequence[Output] = [((size, 1), bytes(size))]
    fits = len(ReplyWriter(model(1), [0], PLENTY).write(request_id, outputs)) <= limit
    for _ in range(2):  # what is kept from the first try does not let the second through
        if fits:
            assert len(writer.write(request_id, outputs)) <= limit
        else:
            with pytest.raises(RequestError, match=f"limit is {limit}: ask for"):
                writer.write(request_id, outputs)


def test_the_limit_is_never_above_protobuf_s_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """No client parses a message of 2 GiB, whatever the operator allows."""
    assert reply_module.MAX_MESSAGE_BYTES == 2**31 - 1
    monkeypatch.setattr(reply_module, "MAX_MESSAGE_BYTES", 100)
    with pytest.raises(RequestError, match="limit is 100"):
        ReplyWriter(model(1), [0], PLENTY).write("", [((100, 1), bytes(100))])


@given(request_id=ids, size=st.integers(0, 70_000))
@settings(deadline=None)
def test_a_reply_in_a_stream_is_the_same_and_the_last(request_id: str, size: int) -> None:
    """Wrapped as Triton's clients expect it, with the word that no other follows."""
    writer = ReplyWriter(model(1), [0], PLENTY)
    outputs: list[Output] = [((1, size), memoryview(b"y" * size))]
    wrapped = pb.ModelStreamInferResponse.FromString(writer.write_in_stream(request_id, outputs))
    alone = parsed(writer.write(request_id, outputs))
    alone.parameters["triton_final_response"].bool_param = True
    assert wrapped == pb.ModelStreamInferResponse(infer_response=alone)


def test_a_reply_in_a_stream_is_within_the_limit_too() -> None:
    """With all that is around it."""
    outputs: list[Output] = [((1, 100), bytes(100))]
    size = len(ReplyWriter(model(1), [0], PLENTY).write_in_stream("7", outputs))
    assert len(ReplyWriter(model(1), [0], size).write_in_stream("7", outputs)) == size
    with pytest.raises(RequestError, match=f"would have {size} bytes; the limit is {size - 1}"):
        ReplyWriter(model(1), [0], size - 1).write_in_stream("7", outputs)


@given(request_id=ids, text=st.text(alphabet=st.characters(codec="utf-8"), max_size=50))
def test_an_error_in_a_stream_names_its_request(request_id: str, text: str) -> None:
    """By the id, and says that nothing else follows."""
    message = pb.ModelStreamInferResponse.FromString(in_band_error(text, request_id))
    assert (message.error_message, message.infer_response.id) == (text, request_id)
    assert message.infer_response.parameters["triton_final_response"].bool_param


def test_classes_stand_in_the_place_of_an_output() -> None:
    """As BYTES of the client's shape; the others are as they were, and so is the order."""
    target = served(
        "x FP32[?,1]",
        "scores FP32[?,3] raw FP32[?,3]",
        "max_batch_size: 4",
        labels={"scores": ("a", "b")},
    )
    writer = writer_of(target, [1, 0], {0: 2}, PLENTY)
    for rows in (2, 1, 2):
        scores = np.array([[1, 3, 2], [9, 7, 8]], np.float32)[:rows]
        outputs: list[Output] = [((rows, 3), memoryview(scores.tobytes()))] * 2
        answer = parsed(writer.write("7", outputs))
        raw, classes = answer.outputs
        assert (raw.name, raw.datatype, list(raw.shape)) == ("raw", "FP32", [rows, 3])
        assert (classes.name, classes.datatype) == ("scores", "BYTES")
        assert list(classes.shape) == [rows, 2]
        assert answer.raw_output_contents[0] == scores.tobytes()
        texts = ["3.000000:1:b", "2.000000:2", "9.000000:0:a", "8.000000:2"][: 2 * rows]
        assert answer.raw_output_contents[1] == b"".join(
            len(text).to_bytes(4, "little") + text.encode() for text in texts
        )
