"""Priority, timeout and source reach the request as they were said, or the call is refused."""

from __future__ import annotations

import pytest

from headrace.errors import RequestError
from headrace.rpc.prepare import Limits, Preparer
from headrace.rpc.wishes import MAX_SOURCE_CHARS, Wishes, source_of, wishes_of
from headrace_proto.v1 import inference_pb2 as pb
from headrace_proto.wire import split_request
from helpers.served import catalog_of, served

ALONE = served("x FP32[?,2]", "y FP32[?,2]", "max_batch_size: 1", name="alone")
LEVELS = served(
    "x FP32[?,2]",
    "y FP32[?,2]",
    "max_batch_size: 4 dynamic_batching { priority_levels: 3 default_priority_level: 2 }",
    name="levels",
)


def parameters(**values: str | int) -> dict[str, pb.InferParameter]:
    return {
        name: pb.InferParameter(string_param=value)
        if isinstance(value, str)
        else pb.InferParameter(int64_param=value)
        for name, value in values.items()
    }


def prepared_wishes(model: str, **values: str | int) -> Wishes | None:
    request = pb.ModelInferRequest(model_name=model, parameters=parameters(**values))
    request.inputs.add(name="x", datatype="FP32", shape=[1, 2])
    request.raw_input_contents.append(bytes(8))
    parts = split_request(request.SerializeToString())
    return Preparer(catalog_of(ALONE, LEVELS), Limits()).prepare(parts.head, parts.raw)[0].wishes


def test_nothing_said_is_nothing_wished() -> None:
    """Other parameters say nothing of the queue; an empty id is none."""
    assert wishes_of(parameters(mine="x")) == Wishes(0, 0.0, None)
    assert wishes_of(parameters(stream_id="")) == Wishes(0, 0.0, None)


def test_numbers_and_texts_are_read() -> None:
    """Microseconds become seconds; a number and its text name the same source."""
    unsigned = {"priority": pb.InferParameter(uint64_param=2)}
    assert wishes_of(unsigned) == Wishes(priority=2)
    assert wishes_of(parameters(priority=1, timeout=250, stream_id=7)) == Wishes(1, 250e-6, "7")
    assert wishes_of(parameters(stream_id=0)).source == "0"
    assert wishes_of(parameters(stream_id="cam é")).source == "cam é"


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"priority": -1}, "parameter 'priority' is -1, expected 0 or more"),
        ({"timeout": -5}, "parameter 'timeout' is -5, expected 0 or more"),
        ({"stream_id": "\n" * 129}, "parameter 'stream_id' has 129 characters, expected at most"),
    ],
)
def test_what_cannot_be_meant_is_refused(values: dict[str, str | int], text: str) -> None:
    """With what came and what was expected, on one line."""
    with pytest.raises(RequestError, match=text) as caught:
        wishes_of(parameters(**values))
    assert str(caught.value).isprintable()


def test_metadata_names_a_source() -> None:
    """The first of the key's values counts."""
    assert source_of(()) is None
    assert source_of((("user-agent", "x"), ("headrace-stream-id", ""))) is None
    several = (("a", "b"), ("headrace-stream-id", "cam 1"), ("headrace-stream-id", "cam 2"))
    assert source_of(several) == "cam 1"
    assert source_of((("headrace-stream-id", b"raw"),)) == "raw"


@pytest.mark.parametrize("value", ["caf\xe9", "a\tb", b"\xff", "x" * (MAX_SOURCE_CHARS + 1)])
def test_metadata_that_is_no_id_is_refused(value: str | bytes) -> None:
    """Long, unprintable or not ASCII: the key stands in the text."""
    with pytest.raises(RequestError, match="metadata 'headrace-stream-id'"):
        source_of((("headrace-stream-id", value),))


@pytest.mark.parametrize(("asked", "taken"), [(0, 0), (1, 1), (3, 3), (4, 0), (1 << 62, 0)])
def test_a_priority_that_is_no_level_is_the_default(asked: int, taken: int) -> None:
    """As in Triton."""
    assert prepared_wishes("levels", priority=asked) == Wishes(taken)


def test_a_queue_that_knows_arrival_only_is_told_nothing() -> None:
    """But what is wrong is refused there, too."""
    assert prepared_wishes("alone", priority=1, stream_id="a") is None
    with pytest.raises(RequestError, match="priority"):
        prepared_wishes("alone", priority=-1)
