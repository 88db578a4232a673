"""The classification extension: the largest values in order, written as C does, with labels."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tritonclient.utils import deserialize_bytes_tensor

from headrace.errors import RequestError
from headrace.rpc.classification import MAX_CLASSES, MAX_ELEMENTS, UNORDERED, top_classes
from headrace_proto.datatypes import DATATYPES

NUMBERS = sorted(set(DATATYPES) - UNORDERED - {"BF16"})


def classes_of(
    array: Any, datatype: str, num_classes: int, *, has_rows: bool = True, **more: Any
) -> Any:
    """What tritonclient reads: an array of texts."""
    shape, content = top_classes(
        array.tobytes(), datatype, array.shape, num_classes, has_rows=has_rows, **more
    )
    texts = [raw.decode() for raw in deserialize_bytes_tensor(content)]
    return np.array(texts, object).reshape(shape)


def expected(row: list[Any], num_classes: int) -> list[str]:
    """The rule itself, slowly: by value, then by index, what is no number last."""

    def rank(index: int) -> tuple[bool, Any, int]:
        value = row[index]
        is_number = value == value  # noqa: PLR0124
        return not is_number, -value if is_number else 0, index

    order = sorted(range(len(row)), key=rank)[:num_classes]
    return [
        ("%f:%d" if isinstance(row[index], float) else "%d:%d") % (row[index], index)
        for index in order
    ]


@pytest.mark.parametrize("datatype", NUMBERS)
@given(
    content=st.binary(max_size=256),
    rows=st.integers(0, 3),
    num_classes=st.integers(1, 15),
    has_few=st.booleans(),
)
@settings(deadline=None, max_examples=30)
def test_the_largest_come_first_of_equal_ones_the_lower_index(
    datatype: str, content: bytes, rows: int, num_classes: int, has_few: bool
) -> None:
    """For every numeric type, its extremes, infinities and NaN included."""
    dtype = DATATYPES[datatype].numpy
    array = np.frombuffer(content[: len(content) // dtype.itemsize * dtype.itemsize], dtype)
    if has_few:  # so that some are equal
        array = (array.view(np.uint8)[:: dtype.itemsize] % 3).astype(dtype)
    width = array.size // rows if rows else 5
    array = array[: rows * width].reshape(rows, width)
    got = classes_of(array, datatype, num_classes)
    assert got.shape == (rows, min(num_classes, width))
    assert got.tolist() == [expected(row, num_classes) for row in array.tolist()]


def test_many_values_few_of_which_are_wanted() -> None:
    """The same where not all are sorted; every third value is the same."""
    array = np.random.default_rng(1).normal(size=(2, 5000)).astype(np.float32)
    array[:, ::3] = 1.5
    assert classes_of(array, "FP32", 40).tolist() == [expected(row, 40) for row in array.tolist()]


def test_bf16_is_compared_as_the_number_that_it_is() -> None:
    """Negative ones too, whose bits would sort the other way."""
    array = np.array([[-1.5, 3.0, -256.0, 0.125]], np.float32)
    bits = (array.view(np.uint32) >> 16).astype(np.uint16)  # exact for these
    wanted = ["3.000000:1", "0.125000:3", "-1.500000:0", "-256.000000:2"]
    assert classes_of(bits, "BF16", 4).tolist() == [wanted]


def test_labels_stand_behind_the_index() -> None:
    """Where there is one: an empty line names nothing, and a list may be too short."""
    array = np.array([[4, 3, 2, 1]], np.int32)
    got = classes_of(array, "INT32", 4, labels=("Katze", "", "größte"))
    assert got.tolist() == [["4:0:Katze", "3:1", "2:2:größte", "1:3"]]


def test_without_rows_all_values_are_one_list() -> None:
    """A model without batches: the classes of the whole tensor."""
    array = np.arange(6, dtype=np.float64).reshape(2, 3)
    assert classes_of(array, "FP64", 2, has_rows=False).tolist() == ["5.000000:5", "4.000000:4"]
    number = np.array(7.0, np.float32)
    assert classes_of(number, "FP32", 9, has_rows=False).tolist() == ["7.000000:0"]


def test_values_are_written_as_c_does() -> None:
    """Six decimals, whatever the size; no exponent."""
    array = np.array([[1e20, 0.1, 1e-9, -math.inf, math.nan]], np.float32)
    assert classes_of(array, "FP32", 5).tolist() == [
        ["100000002004087734272.000000:0", "0.100000:1", "0.000000:2", "-inf:3", "nan:4"]
    ]


def test_rows_of_more_dimensions_are_flat() -> None:
    """The index counts through all but the first."""
    array = np.zeros((2, 2, 3), np.uint8)
    array[0, 1, 2], array[1, 0, 1] = 9, 8
    assert classes_of(array, "UINT8", 1).tolist() == [["9:5"], ["8:1"]]


def test_there_is_a_limit() -> None:
    """On what is looked at and on what is written: both take time of all callers."""
    with pytest.raises(RequestError, match=f"{MAX_ELEMENTS + 1} elements.*ask for fewer"):
        classes_of(np.zeros((1, MAX_ELEMENTS + 1), np.int8), "INT8", 1)
    with pytest.raises(RequestError, match=f"into {2 * MAX_CLASSES} classes"):
        classes_of(np.zeros((2, MAX_CLASSES), np.int8), "INT8", MAX_CLASSES)
