"""What is kept of a request's head, and that keeping it changes no answer."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import HeadraceError, NotFoundError, RequestError, UnsupportedError
from headrace.rpc import prepare as prepare_module
from headrace.rpc.parse import parse
from headrace.rpc.prepare import Limits, Prepared, Preparer
from headrace.rpc.tensors import here
from headrace_proto.v1 import inference_pb2 as pb
from headrace_proto.wire import split_request
from helpers.proto_wire import field
from helpers.served import catalog_of, served

PAIR = served("a FP32[?,4] b INT32[?,2]", "p FP32[?,4] q INT32[?,2]", "max_batch_size: 8", name="m")
TEXT = served("c BYTES[?,1]", "d BYTES[?,1]", "max_batch_size: 8", name="text")
FREE = "".join(f'input {{ name: "{name}" dims: [ -1 ] }}' for name in "ab")  # no batches
TEXTS = served("a BYTES[?] b BYTES[?]", "d BYTES[?]", FREE, name="texts")
EMPTY = bytes(4)  # an element without bytes
CATALOG = catalog_of(PAIR, TEXT, TEXTS)
A, B = bytes(range(16)), bytes(range(8))


def request(*, order: str = "ab", **fields: Any) -> pb.ModelInferRequest:
    """A right request to `m`, its inputs in this order."""
    inputs = {
        "a": (pb.ModelInferRequest.InferInputTensor(name="a", datatype="FP32", shape=[1, 4]), A),
        "b": (pb.ModelInferRequest.InferInputTensor(name="b", datatype="INT32", shape=[1, 2]), B),
    }
    return pb.ModelInferRequest(
        **{
            "model_name": "m",
            "inputs": [inputs[name][0] for name in order],
            "raw_input_contents": [inputs[name][1] for name in order],
            **fields,
        }
    )


def prepare(preparer: Preparer, message: pb.ModelInferRequest) -> tuple[Prepared, list[bytes]]:
    parts = split_request(message.SerializeToString())
    prepared, tensors = preparer.prepare(parts.head, parts.raw)
    return prepared, [bytes(here(tensor)) for tensor in tensors]


def preparer(**limits: int) -> Preparer:
    return Preparer(CATALOG, Limits(**limits))


def text_request(*elements: bytes) -> pb.ModelInferRequest:
    raw = b"".join(len(each).to_bytes(4, "little") + each for each in elements)
    tensor = pb.ModelInferRequest.InferInputTensor(
        name="c", datatype="BYTES", shape=[len(elements), 1]
    )
    return pb.ModelInferRequest(model_name="text", inputs=[tensor], raw_input_contents=[raw])


def test_equal_heads_are_checked_once() -> None:
    """Ids and tensors differ from request to request; all else is looked up."""
    kept = preparer()
    first, _ = prepare(kept, request(id="1"))
    second, tensors = prepare(kept, request(id="2", raw_input_contents=[B + B, b"12345678"]))
    assert second is first
    assert tensors == [B + B, b"12345678"]
    assert first.layout is not None


def test_tensors_come_in_the_model_s_order() -> None:
    """The first time and from what is kept."""
    kept = preparer()
    for _ in range(2):
        prepared, tensors = prepare(kept, request(order="ba"))
        assert tensors == [A, B]
        assert prepared.shapes == ((1, 4), (1, 2))


def test_sizes_are_checked_for_kept_heads_too() -> None:
    """A head that was right once does not let a short tensor through."""
    kept = preparer()
    prepare(kept, request())
    for raw in ([A[1:], B], [A, B + b"x"], [B, A]):
        with pytest.raises(RequestError, match="byte size mismatch"):
            prepare(kept, request(raw_input_contents=raw))


@pytest.mark.parametrize("raw", [[], [A], [A, B, B]], ids=len)
def test_the_number_of_tensors_is_checked_for_kept_heads_too(raw: list[bytes]) -> None:
    """As for new ones."""
    kept = preparer()
    prepare(kept, request())
    with pytest.raises(RequestError):
        prepare(kept, request(raw_input_contents=raw))
    prepare(kept, request())


def test_text_of_another_length_has_another_layout() -> None:
    """The size of BYTES is no part of the head, so the layout is made for each request."""
    kept = preparer()
    first, short = prepare(kept, text_request(b"a"))
    second, long = prepare(kept, text_request(b"abcdefgh"))
    assert second is first
    assert first.layout is None
    sizes = [first.layout_of(tensors).input_sizes for tensors in (short, long)]
    assert sizes == [(5,), (12,)]


def test_typed_values_are_part_of_the_head_and_never_kept() -> None:
    """The next request with other values gets its own."""
    kept = preparer()
    for values in ([1, 2], [3, 4], [1, 2]):
        message = request(raw_input_contents=[])
        message.inputs[0].contents.fp32_contents.extend([0.5] * 4)
        message.inputs[1].contents.int_contents.extend(values)
        _, tensors = prepare(kept, message)
        assert tensors[1] == b"".join(value.to_bytes(4, "little") for value in values)


def test_a_new_version_takes_over() -> None:
    """What is kept is forgotten when the same name leads somewhere else."""
    catalog = catalog_of(served("x FP32[?,1]", "y FP32[?,1]"))
    kept = Preparer(catalog, Limits())
    message = pb.ModelInferRequest(model_name="m", raw_input_contents=[bytes(4)])
    message.inputs.add(name="x", datatype="FP32", shape=[1, 1])
    assert prepare(kept, message)[0].served.spec.version == 1
    catalog.add(served("x FP32[?,1]", "y FP32[?,1]", version=2))
    assert prepare(kept, message)[0].served.spec.version == 2


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest head goes; a long one is not kept at all."""
    monkeypatch.setattr(prepare_module, "MAX_HEADS", 3)
    kept = preparer()
    messages = [request(parameters={f"p{i}": pb.InferParameter(int64_param=i)}) for i in range(4)]
    first, *others = [prepare(kept, message)[0] for message in messages]
    assert [prepare(kept, message)[0] for message in messages[1:]] == others
    assert prepare(kept, messages[0])[0] is not first
    long_name = "p" * prepare_module.MAX_HEAD_BYTES
    long = request(parameters={long_name: pb.InferParameter(bool_param=True)})
    assert prepare(kept, long)[0] is not prepare(kept, long)[0]


def test_outputs_in_the_order_of_the_request() -> None:
    """All of them, in the model's order, when none is named."""
    for names, shown in (("", ["p", "q"]), ("q", ["q"]), ("qp", ["q", "p"])):
        message = request()
        for name in names:
            message.outputs.add(name=name)
        prepared, _ = prepare(preparer(), message)
        reply = prepared.writer.write("", [((1, 4), A), ((1, 2), B)])
        answer = pb.ModelInferResponse.FromString(reply)
        assert [output.name for output in answer.outputs] == shown
        assert list(answer.raw_output_contents) == [{"p": A, "q": B}[name] for name in shown]


def test_outputs_that_are_unknown_or_twice() -> None:
    """The text names the output and what there is."""
    message = request()
    message.outputs.add(name="r")
    with pytest.raises(RequestError, match=r"output 'r' for model 'm'; it gives 'p', 'q'"):
        prepare(preparer(), message)
    message.outputs[0].name = "p"
    message.outputs.add(name="p")
    with pytest.raises(RequestError, match="output 'p' for model 'm' is named twice"):
        prepare(preparer(), message)
    message.outputs[1].name = "q"
    message.outputs[1].parameters["shared_memory_region"].string_param = "r"
    with pytest.raises(UnsupportedError, match="output 'q'"):
        prepare(preparer(), message)


@pytest.mark.parametrize("datatype", ["BOOL", "BYTES"])
def test_classes_of_what_has_no_order(datatype: str) -> None:
    """Are refused before anything runs."""
    message = pb.ModelInferRequest(model_name="m", raw_input_contents=[bytes(4)])
    message.inputs.add(name="x", datatype="FP32", shape=[1])
    output = message.outputs.add(name="y")
    output.parameters["classification"].int64_param = 3
    catalog = catalog_of(served("x FP32[1]", f"y {datatype}[1]"))
    with pytest.raises(
        RequestError, match=f"output 'y' of model 'm'.*unsupported type '{datatype}'"
    ):
        prepare(Preparer(catalog, Limits()), message)


def test_limits_on_tensors() -> None:
    """Too many inputs or outputs are refused before any is looked at."""
    few = preparer(max_tensors=2)
    prepare(few, request())
    many = request()
    for _ in range(3):
        many.outputs.add(name="p")
    with pytest.raises(RequestError, match="names 3 outputs; this server takes 2"):
        prepare(few, many)
    with pytest.raises(RequestError, match="names 3 inputs; this server takes 2"):
        prepare(few, request(order="aba"))


def test_limits_on_elements() -> None:
    """Of one tensor."""
    text = "has 4 elements; this server takes at most 3 .* --max-elements"
    with pytest.raises(RequestError, match=text):
        prepare(preparer(max_elements=3), request())


def test_limits_on_strings() -> None:
    """Of all tensors together, for kept heads too; numbers do not count."""
    few = preparer(max_strings=2)
    prepare(few, request())
    for _ in range(2):
        prepare(few, text_request(b"", b"ab"))
        with pytest.raises(
            RequestError, match="has 3 BYTES elements .* at most 2 .* --max-strings"
        ):
            prepare(few, text_request(b"", b"", b""))
        two = pb.ModelInferRequest(model_name="texts", raw_input_contents=[EMPTY, EMPTY * 2])
        for name, count in (("a", 1), ("b", 2)):
            two.inputs.add(name=name, datatype="BYTES", shape=[count])
        with pytest.raises(RequestError, match="has 3 BYTES elements for model 'texts'"):
            prepare(few, two)


def test_limits_on_fields() -> None:
    """Of all kinds, before they are parsed."""
    parameter = b"\x0a\x01k\x12\x02\x08\x01"  # k: true
    few, many = ((b"\x22\x07" + parameter) * count for count in (2000, 120_000))
    parts = split_request(request().SerializeToString() + few)
    preparer().prepare(parts.head, parts.raw)
    parts = split_request(request().SerializeToString() + field(5, many))
    for limits, most in ({}, 143_360), ({"max_tensors": 2, "max_strings": 1}, 4161):
        with pytest.raises(RequestError, match=f"more than {most} fields.*--max-strings"):
            preparer(**limits).prepare(parts.head, parts.raw)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_request_or_an_error_of_the_caller(head: bytes) -> None:
    """Never anything else; protobuf itself says which."""
    try:
        expected = pb.ModelInferRequest.FromString(head)
    except DecodeError:
        with pytest.raises(RequestError, match="not a ModelInferRequest"):
            parse(pb.ModelInferRequest, head)
    else:
        assert parse(pb.ModelInferRequest, head) == expected


tensors = st.builds(
    pb.ModelInferRequest.InferInputTensor,
    name=st.sampled_from(["a", "b", "c", ""]),
    datatype=st.sampled_from(["FP32", "INT32", "BYTES", "?"]),
    shape=st.lists(st.sampled_from([-1, 0, 1, 2, 4, 9, 2**62]), max_size=3),
)
requests = st.builds(
    pb.ModelInferRequest,
    model_name=st.sampled_from(["m", "text", "none"]),
    model_version=st.sampled_from(["", "1", "2", "x"]),
    inputs=st.lists(tensors, max_size=3),
    raw_input_contents=st.lists(st.sampled_from([b"", A, B, b"\1\0\0\0a", A + A]), max_size=3),
)


@given(st.lists(st.one_of(requests, st.just(request())), min_size=1, max_size=8))
@settings(deadline=None)
def test_keeping_changes_no_answer(messages: list[pb.ModelInferRequest]) -> None:
    """One preparer for all requests answers each as a fresh one does."""
    kept = preparer()
    for message in [*messages, *messages]:
        assert outcome(kept, message) == outcome(preparer(), message)


def outcome(preparer: Preparer, message: pb.ModelInferRequest) -> tuple[Any, ...]:
    try:
        prepared, tensors = prepare(preparer, message)
    except HeadraceError as error:
        return (type(error), str(error))
    return (prepared.served, prepared.shapes, prepared.rows, tensors)


def test_the_model_is_found_before_its_inputs_are_judged() -> None:
    """An unknown model is NOT_FOUND whatever else is wrong."""
    with pytest.raises(NotFoundError):
        prepare(preparer(), pb.ModelInferRequest(model_name="none"))
