"""The inputs of a request against the model: each check by itself, with its text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import RequestError
from headrace.model import ServedModel
from headrace.rpc.tensors import (
    check_shapes,
    check_sizes,
    expected_sizes,
    match_inputs,
    quoted,
    raw_tensors,
)
from headrace_proto.v1 import inference_pb2 as pb
from helpers.served import served

MOST = 10_000  # elements
BATCHED = served("a FP32[?,4] b INT32[?,2]", "y FP32[?,4]", "max_batch_size: 8")
WHOLE = 'input { name: "x" dims: [ -1, -1 ] }'  # both dimensions are the client's: no batches
FREE = served("x FP16[?,?]", "y FP16[?,?]", WHOLE)
SHAPED = served("!s INT32[2] x FP32[?,4]", "y FP32[?,4]", "max_batch_size: 8")


def request(*inputs: tuple[str, str, Sequence[int]]) -> pb.ModelInferRequest:
    message = pb.ModelInferRequest()
    for name, datatype, shape in inputs:
        message.inputs.add(name=name, datatype=datatype, shape=shape)
    return message


def pair(rows: int = 2, b_rows: int | None = None) -> pb.ModelInferRequest:
    b_rows = rows if b_rows is None else b_rows
    return request(("b", "INT32", [b_rows, 2]), ("a", "FP32", [rows, 4]))


def checked(message: pb.ModelInferRequest, model: ServedModel = BATCHED) -> tuple[object, int]:
    return check_shapes(message, model, match_inputs(message, model), MOST)


def refused(message: pb.ModelInferRequest, model: ServedModel = BATCHED) -> str:
    with pytest.raises(RequestError) as caught:
        checked(message, model)
    return str(caught.value)


def test_inputs_are_paired_by_name() -> None:
    """Clients may send inputs in any order."""
    assert match_inputs(pair(), BATCHED) == (1, 0)


def test_inputs_that_are_missing_unknown_or_twice() -> None:
    """The text names the input, the model and what the model takes."""
    assert refused(request(("a", "FP32", [1, 4]))) == (
        "expected 2 inputs but got 1 inputs for model 'm': missing 'b'"
    )
    twice = request(("a", "FP32", [1, 4]), ("a", "FP32", [1, 4]))
    assert refused(twice) == "input 'a' for model 'm' is given twice"
    unknown = pair()
    unknown.inputs.add(name="c")
    assert refused(unknown) == "unexpected inference input 'c' for model 'm'; it takes 'a', 'b'"


def test_many_or_long_names_stay_readable() -> None:
    """A text names eight at most, each cut at 80 characters."""
    assert quoted(["a"]) == "'a'"
    assert quoted(list("abcdefghi")).endswith("'h', ...")
    assert quoted(["n" * 10_000]) == f"'{'n' * 80}… (9920 more characters)'"


def test_right_shapes_come_back_in_the_model_s_order() -> None:
    """With the rows of the batch."""
    assert checked(pair(rows=3)) == (((3, 4), (3, 2)), 3)
    assert checked(request(("x", "FP16", [0, 7])), FREE) == (((0, 7),), 1)


@pytest.mark.parametrize("datatype", ["INT32", "", "fp32", "TYPE_FP32", "F" * 1000])
def test_another_datatype(datatype: str) -> None:
    """The text says which came and which was expected; nonsense is called so, and cut."""
    text = refused(request(("a", datatype, [1, 4]), ("b", "INT32", [1, 2])))
    assert f"'{datatype[:80]}" in text
    assert "expects 'FP32'" in text
    assert ("no datatype of the protocol" in text) == (datatype != "INT32")
    assert len(text) < 250


@pytest.mark.parametrize(
    "shape", [[4], [1, 4, 1], [], [1, 5], [1, 0], [1, -1], [-1, 4], [1, -4], [1] * 5000]
)
def test_another_shape(shape: list[int]) -> None:
    """Rank and each fixed dimension must fit, and none may be open; a long shape is cut."""
    text = refused(request(("a", "FP32", shape), ("b", "INT32", [1, 2])))
    assert "unexpected shape for input 'a' for model 'm'. Expected [-1, 4], got [" in text
    assert ("all dimensions given" in text) == (min(shape, default=0) < 0)
    assert len(text) < 300


@pytest.mark.parametrize(("rows", "is_right"), [(0, False), (1, True), (8, True), (9, False)])
def test_rows_of_a_batch(rows: int, is_right: bool) -> None:
    """At least one, at most as many as the model takes."""
    if is_right:
        assert checked(pair(rows))[1] == rows
    else:
        assert "inference request batch-size must be <= 8" in refused(pair(rows))


def test_inputs_of_one_batch_have_the_same_rows() -> None:
    """The text names the input that differs, and both numbers."""
    text = refused(pair(2, b_rows=3))
    assert text == "input 'b' batch size does not match other inputs for 'm': 3 against 2"


def test_a_shape_tensor_has_no_rows() -> None:
    """Its first dimension counts values, not rows."""
    message = request(("s", "INT32", [2]), ("x", "FP32", [5, 4]))
    assert checked(message, SHAPED) == (((2,), (5, 4)), 5)


@given(st.lists(st.integers(0, 2**63 - 1), min_size=2, max_size=2))
def test_the_bound_of_elements_holds_for_any_numbers(shape: list[int]) -> None:
    """Products are exact: none overflows into something small."""
    message = request(("x", "FP16", shape))
    if shape[0] * shape[1] <= MOST:
        assert checked(message, FREE) == ((tuple(shape),), 1)
    else:
        assert f"at most {MOST} a tensor" in refused(message, FREE)


def test_raw_and_typed_together_or_not_at_all() -> None:
    """Each input has its data exactly once."""
    message = pair()
    with pytest.raises(RequestError, match="one raw_input_contents for each of the 2 inputs"):
        raw_tensors(message.inputs, [b""], "m")
    with pytest.raises(RequestError, match="input 'b' for model 'm' has no data"):
        raw_tensors(message.inputs, [], "m")
    message.inputs[1].contents.fp32_contents.extend([0.0] * 8)
    with pytest.raises(RequestError, match="must not be specified when using raw.*input 'a'"):
        raw_tensors(message.inputs, [b"", b""], "m")
    with pytest.raises(RequestError, match="input 'b' for model 'm' has no data"):
        raw_tensors(message.inputs, [], "m")


def test_typed_values_become_the_tensor_s_bytes() -> None:
    """As numpy lays them out."""
    message = pair()
    message.inputs[0].contents.int_contents.extend([1, -2, 3, -4])
    message.inputs[1].contents.fp32_contents.extend([0.5] * 8)
    b, a = raw_tensors(message.inputs, [], "m")
    assert bytes(b) == np.array([1, -2, 3, -4], "<i4").tobytes()
    assert bytes(a) == np.full(8, 0.5, "<f4").tobytes()


def test_typed_values_that_do_not_fit_name_their_input() -> None:
    """The codec's text comes with the input and the model before it."""
    message = request(("x", "INT8", [1]))
    message.inputs[0].contents.int_contents.append(128)
    with pytest.raises(RequestError, match=r"input 'x' for model 'm': element 0 is 128.*INT8"):
        raw_tensors(message.inputs, [], "m")


@pytest.mark.parametrize(
    ("datatype", "size"), [("BOOL", 6), ("FP16", 12), ("BF16", 12), ("FP64", 48), ("BYTES", -1)]
)
def test_the_bytes_of_a_shape(datatype: str, size: int) -> None:
    """Elements times the size of one; BYTES tell their size themselves."""
    model = served(f"x {datatype}[?,?]", f"y {datatype}[?,?]", WHOLE)
    assert expected_sizes(model, [(2, 3)]) == (size,)


@given(st.binary(max_size=32))
def test_sizes_are_exact(tensor: bytes) -> None:
    """Only as many bytes as the shape needs pass."""
    shapes = [(2, 4)]
    sizes = expected_sizes(FREE, shapes)
    if len(tensor) == 16:
        check_sizes(FREE, shapes, sizes, [tensor])
    else:
        with pytest.raises(RequestError) as caught:
            check_sizes(FREE, shapes, sizes, [memoryview(tensor)])
        assert str(caught.value) == (
            "input byte size mismatch for input 'x' for model 'm'. Expected 16 for shape [2, 4] of "
            f"FP16, got {len(tensor)}"
        )
