"""What a caller may give as a tensor, held against numpy's own bytes."""

from __future__ import annotations

import struct

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import ArrayLike

from headrace_client import InvalidInput, Tensor
from headrace_client.tensor import Array, TensorLike, encode

NUMPY_DATATYPES = {
    "BOOL": np.bool_,
    "UINT8": np.uint8,
    "UINT16": np.uint16,
    "UINT32": np.uint32,
    "UINT64": np.uint64,
    "INT8": np.int8,
    "INT16": np.int16,
    "INT32": np.int32,
    "INT64": np.int64,
    "FP16": np.float16,
    "FP32": np.float32,
    "FP64": np.float64,
}
FLOATS = [[1.0, -0.5], [3.140625, 65280.0]]  # each exact in BF16


def bytes_of(elements: list[bytes]) -> bytes:
    """Frame elements as the protocol says: four bytes of little-endian length before each."""
    return b"".join(struct.pack("<I", len(element)) + element for element in elements)


@pytest.mark.parametrize("datatype", NUMPY_DATATYPES)
def test_arrays_travel_as_their_bytes(datatype: str) -> None:
    """The datatype follows from the array, and its bytes are numpy's."""
    array: Array = np.arange(6).reshape(2, 3).astype(NUMPY_DATATYPES[datatype])
    name, shape, raw = encode("x", array)
    assert (name, shape, bytes(raw)) == (datatype, (2, 3), array.tobytes())


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12, dtype=np.float32).reshape(3, 4)[:, ::2],
        np.asfortranarray(np.arange(12, dtype=np.float32).reshape(3, 4)),
        np.arange(4, dtype=">f4"),
        np.float32(7),
        np.zeros((0, 3), np.float32),
    ],
    ids=["strided", "fortran", "big-endian", "scalar", "empty"],
)
def test_unusual_layouts(array: Array) -> None:
    """Whatever lies in memory, little-endian C order travels."""
    datatype, shape, raw = encode("x", array)
    assert (datatype, shape) == ("FP32", array.shape)
    assert bytes(raw) == array.astype("<f4").tobytes()


@pytest.mark.parametrize(
    ("value", "datatype", "dtype"),
    [([1, 2], "INT64", "<i8"), ([0.5], "FP64", "<f8"), (True, "BOOL", "?"), (3, "INT64", "<i8")],
)
def test_plain_numbers(value: ArrayLike, datatype: str, dtype: str) -> None:
    """Lists and numbers become what numpy makes of them."""
    encoded = encode("x", value)
    assert encoded.datatype == datatype
    assert bytes(encoded.raw) == np.array(value, dtype).tobytes()


@pytest.mark.parametrize(
    ("value", "shape", "elements"),
    [
        (["ab", "wörld"], (2,), [b"ab", "wörld".encode()]),
        ([[b"a\0"], [b""]], (2, 1), [b"a\0", b""]),
        ("alone", (), [b"alone"]),
        (b"\xff\0", (), [b"\xff\0"]),
        (np.array([b"x\0y", "z"], dtype=object), (2,), [b"x\0y", b"z"]),
        (np.array(["ab", "c"]), (2,), [b"ab", b"c"]),
        (np.array([b"ab", b"c"]), (2,), [b"ab", b"c"]),
        (np.array([], dtype=object), (0,), []),
    ],
)
def test_strings_and_bytes(value: ArrayLike, shape: tuple[int, ...], elements: list[bytes]) -> None:
    """Strings are UTF-8, bytes stay as they are, down to the last NUL."""
    datatype, got_shape, raw = encode("x", value)
    assert (datatype, got_shape, bytes(raw)) == ("BYTES", shape, bytes_of(elements))


@pytest.mark.parametrize(
    "value",
    [
        np.array(FLOATS, ml_dtypes.bfloat16),
        Tensor(np.array(FLOATS, ml_dtypes.bfloat16), "BF16"),
        Tensor(np.array(FLOATS, np.float32), "BF16"),
        Tensor(np.array(FLOATS, np.float64), "BF16"),
        Tensor(FLOATS, "BF16"),
        Tensor(np.array(FLOATS, ml_dtypes.bfloat16).view(np.uint16), "BF16"),
    ],
    ids=["ml_dtypes", "ml_dtypes named", "float32", "float64", "list", "bits"],
)
def test_bf16(value: TensorLike) -> None:
    """Every way to say BF16 travels as the bits that ml_dtypes makes."""
    datatype, shape, raw = encode("x", value)
    assert (datatype, shape) == ("BF16", (2, 2))
    assert bytes(raw) == np.array(FLOATS, ml_dtypes.bfloat16).tobytes()


@pytest.mark.parametrize("datatype", NUMPY_DATATYPES)
def test_a_list_becomes_the_datatype_that_is_said(datatype: str) -> None:
    """`Tensor` gives plain numbers their datatype."""
    encoded = encode("x", Tensor([0, 1], datatype))
    expected = np.array([0, 1], NUMPY_DATATYPES[datatype]).tobytes()
    assert (encoded.datatype, bytes(encoded.raw)) == (datatype, expected)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.zeros(2, np.complex64), "complex64"),
        (np.array(["2020-01-01"], "datetime64[D]"), "datetime64"),
        (np.zeros(2, ml_dtypes.float8_e4m3fn), "float8_e4m3fn"),
        (np.array([1, "a"], dtype=object), "int"),
        ([[1, 2], [3]], "inhomogeneous"),
        (Tensor([1], "FLOAT"), "'FLOAT' is unknown; expected one of BOOL"),
        (Tensor(np.zeros(2), "FP32"), r"float64.*FP32.*\.astype\('float32'\)"),
        (Tensor([-1], "UINT8"), "not every value is one of UINT8"),
        (Tensor([2.5], "INT32"), "not every value is one of INT32"),
        (Tensor([float("nan")], "INT64"), "not every value is one of INT64"),
        (Tensor([2], "BOOL"), "not every value is one of BOOL"),
        (Tensor(["1"], "FP32"), "expected numbers, for FP32"),
        (Tensor([2**64], "UINT64"), "expected numbers, for UINT64"),
        (Tensor(["a"], "BF16"), "expected floats, or uint16 bits"),
    ],
)
def test_what_has_no_place_in_the_protocol(value: TensorLike, text: str) -> None:
    """What cannot travel as it is gets refused by name, never cast."""
    with pytest.raises(InvalidInput, match=text) as caught:
        encode("x", value)
    assert str(caught.value).startswith("input 'x': ")


def test_a_contiguous_array_is_not_copied() -> None:
    """The bytes to send are a view of the caller's array."""
    array = np.zeros(1000, np.float32)
    assert np.shares_memory(np.frombuffer(encode("x", array).raw, np.uint8), array)
