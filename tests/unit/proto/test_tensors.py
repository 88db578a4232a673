"""Tensors keep every bit between numpy, typed contents and the wire; misfits are named."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_np
from tritonclient.grpc import InferInput

from headrace_proto.datatypes import DATATYPES
from headrace_proto.tensors import (
    TensorError,
    bf16_to_float32,
    contents_to_raw,
    decode_bytes,
    float32_to_bf16,
    from_raw,
    to_raw,
)
from headrace_proto.v1 import inference_pb2 as pb

FIXED = sorted(set(DATATYPES) - {"BYTES"})
TYPED = sorted(name for name, each in DATATYPES.items() if each.contents_field)

Array = np.ndarray[Any, np.dtype[Any]]


@st.composite
def _tensors(draw: st.DrawFn, names: list[str]) -> tuple[str, Array]:
    name = draw(st.sampled_from(names))
    shape = draw(st_np.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
    return name, draw(st_np.arrays(DATATYPES[name].numpy, shape))


def _contents(name: str, values: list[Any]) -> pb.InferTensorContents:
    contents = pb.InferTensorContents()
    getattr(contents, str(DATATYPES[name].contents_field)).extend(values)
    return contents


@given(_tensors(FIXED))
def test_round_trip_keeps_every_bit(tensor: tuple[str, Array]) -> None:
    """An array comes back with its dtype, shape and bits, NaN payloads included."""
    name, array = tensor
    back = from_raw(to_raw(array, name), name, array.shape)
    assert (back.dtype, back.shape) == (DATATYPES[name].numpy, array.shape)
    assert back.tobytes() == array.tobytes()


@given(_tensors(sorted({*FIXED} - {"BF16"})))
def test_raw_is_what_a_peer_sends(tensor: tuple[str, Array]) -> None:
    """Tritonclient puts the same bytes on the wire."""
    name, array = tensor
    peer = InferInput("x", list(array.shape), name)
    peer.set_data_from_numpy(array)
    assert bytes(to_raw(array, name)) == peer._get_content()


@given(_tensors(FIXED))
def test_order_of_the_memory_does_not_matter(tensor: tuple[str, Array]) -> None:
    """Transposed, strided and big-endian arrays go out in C order, little-endian."""
    name, array = tensor
    expected = array.T.tobytes()
    assert bytes(to_raw(array.T, name)) == expected
    assert bytes(to_raw(array.T.astype(array.dtype.newbyteorder(">")), name)) == expected
    assert (
        bytes(to_raw(array[..., ::2] if array.ndim else array, name))
        == (array[..., ::2] if array.ndim else array).tobytes()
    )


def test_views_where_possible() -> None:
    """A contiguous array is not copied on the way out, a tensor not on the way in."""
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    raw = to_raw(array, "FP32")
    assert isinstance(raw, memoryview)
    assert np.shares_memory(np.frombuffer(raw, dtype=np.uint8), array)
    message = bytearray(b"abc" + raw)
    back = from_raw(memoryview(message)[3:], "FP32", [2, 3])
    assert np.shares_memory(back, np.frombuffer(message, dtype=np.uint8))
    assert not back.flags.writeable
    assert np.array_equal(back, array)


def test_bool_bytes_that_are_not_0_or_1() -> None:
    """Any other byte is true, and numpy computes with it as with any True."""
    back = from_raw(b"\x00\x01\x02\xff", "BOOL", [4])
    assert back.view(np.uint8).tolist() == [0, 1, 1, 1]
    assert not back.flags.writeable


@pytest.mark.parametrize(
    "array",
    [
        np.array([[b"ab", b"\x00"], ["ü", b""]], dtype=object),
        np.array([[b"ab", b"x"], [b"", b"yz"]]),
        np.array([["ab", "ü"], ["", "yz"]]),
    ],
    ids=["objects", "S", "U"],
)
def test_bytes_arrays(array: Array) -> None:
    """BYTES come back as an array of bytes objects of the same shape; text as UTF-8."""
    back = from_raw(to_raw(array, "BYTES"), "BYTES", array.shape)
    expected = [e.encode() if isinstance(e, str) else e for e in array.ravel().tolist()]
    assert (back.dtype, back.shape) == (np.dtype(object), (2, 2))
    assert back.ravel().tolist() == expected
    assert not back.flags.writeable


@pytest.mark.parametrize(
    ("dtype", "name", "text"),
    [
        ("f8", "FP32", "FP32 needs an array of float32, and float64 came: use astype"),
        ("i8", "INT32", "needs an array of int32, and int64 came"),
        ("f4", "BF16", "needs an array of uint16, and float32 came: use float32_to_bf16"),
        ("f4", "BYTES", "needs an array of bytes or str, and float32 came"),
        ("O", "FP32", "needs an array of float32, and object came"),
        ("f4", "FP8", "datatype 'FP8' is unknown"),
    ],
)
def test_arrays_of_another_type_are_refused(dtype: str, name: str, text: str) -> None:
    """Nothing is converted in silence: the text has both types and how to mend it."""
    with pytest.raises(TensorError, match=text):
        to_raw(np.zeros(2, dtype=dtype), name)


@pytest.mark.parametrize(
    ("size", "name", "shape", "text"),
    [
        (7, "FP32", [2], r"7 bytes came for FP32 of shape \[2\], which takes 8"),
        (0, "INT8", [], "which takes 1"),
        (4, "FP32", [2**62, 2**62], "4 bytes came"),
        (4, "FP32", [-1], r"shape \[-1\] has an open dimension"),
        (4, "FP32", [-1, -1], "open dimension"),
        (0, "FP32", [0, 2**70], "more than an array can have"),
        (1, "UINT8", [1] * 100, "more than an array can have"),
        (4, "BYTES", [2], "element 1 of 2"),
        (4, "BYTES", [2**62, 2**62], "element 1 of"),
    ],
)
def test_bytes_that_do_not_fit_are_refused(
    size: int, name: str, shape: list[int], text: str
) -> None:
    """Wrong sizes, open dimensions and shapes beyond numpy end in one kind of error."""
    with pytest.raises(TensorError, match=text):
        from_raw(bytes(size), name, shape)


@given(_tensors(sorted({*TYPED} - {"BYTES"})))
def test_contents_become_raw(tensor: tuple[str, Array]) -> None:
    """Typed values end as the bytes that the same array has raw, also after a trip as a message."""
    name, array = tensor
    contents = _contents(name, array.ravel().tolist())
    sent = contents.SerializeToString() + b"\x7a\x03abc"  # and a field of a later version
    for each in (contents, pb.InferTensorContents.FromString(sent)):
        raw = contents_to_raw(each, name, array.size)
        expected = np.asarray(array.ravel().tolist(), dtype=array.dtype)
        assert np.array_equal(
            np.frombuffer(raw, dtype=array.dtype), expected, equal_nan=array.dtype.kind == "f"
        )
    assert pb.InferTensorContents.FromString(sent).SerializeToString() == sent


@given(st.lists(st.binary(max_size=9), max_size=5))
def test_bytes_contents_become_raw(elements: list[bytes]) -> None:
    """Each entry of bytes_contents is one element."""
    contents = pb.InferTensorContents(bytes_contents=elements)
    assert (
        decode_bytes(contents_to_raw(contents, "BYTES", len(elements)), len(elements)) == elements
    )


@pytest.mark.parametrize("name", ["INT8", "INT16", "UINT8", "UINT16"])
def test_narrowing_checks_the_range(name: str) -> None:
    """The ends of the range pass; one beyond is refused with element, value and range."""
    limits = np.iinfo(DATATYPES[name].numpy)
    ends = [limits.min, limits.max]
    raw = contents_to_raw(_contents(name, ends), name, 2)
    assert np.frombuffer(raw, dtype=limits.dtype).tolist() == ends
    beyond = [limits.max + 1] if limits.min == 0 else [limits.max + 1, limits.min - 1]
    for value in beyond:
        text = f"element 1 is {value}, and {name} holds {limits.min} to {limits.max}"
        with pytest.raises(TensorError, match=text):
            contents_to_raw(_contents(name, [0, value]), name, 2)


@pytest.mark.parametrize(
    ("contents", "name", "num_elements", "text"),
    [
        (pb.InferTensorContents(fp32_contents=[1]), "FP16", 1, "send it in raw_input_contents"),
        (pb.InferTensorContents(fp32_contents=[1]), "INT32", 1, "in int_contents, not fp32_cont"),
        (
            pb.InferTensorContents(int_contents=[1], int64_contents=[1]),
            "INT32",
            1,
            "in int_contents, not int64_contents",
        ),
        (pb.InferTensorContents(int_contents=[1]), "INT32", 2, "has 1 elements, and the shape 2"),
        (pb.InferTensorContents(), "FP32", 1, "fp32_contents has 0 elements, and the shape 1"),
        (pb.InferTensorContents(), "FP32", 10**30, "has 0 elements"),
        (pb.InferTensorContents(), "float", 0, "datatype 'float' is unknown"),
    ],
)
def test_contents_that_do_not_fit_are_refused(
    contents: pb.InferTensorContents, name: str, num_elements: int, text: str
) -> None:
    """Another field, another count, or a type without typed contents: each has its text."""
    with pytest.raises(TensorError, match=text):
        contents_to_raw(contents, name, num_elements)


def test_bf16_values_are_exact() -> None:
    """Every bit pattern becomes the value that ml_dtypes gives, and comes back."""
    bits = np.arange(2**16, dtype=np.uint16).reshape(256, 256)
    expected = bits.view(ml_dtypes.bfloat16).astype(np.float32)
    values = bf16_to_float32(bits)
    assert np.array_equal(values, expected, equal_nan=True)
    numbers = ~np.isnan(values)
    assert np.array_equal(float32_to_bf16(values)[numbers], bits[numbers])


@given(st_np.arrays(np.uint32, st_np.array_shapes(min_dims=0, min_side=0)))
def test_bf16_rounds_to_nearest_even(patterns: np.ndarray[Any, np.dtype[np.uint32]]) -> None:
    """Any float32 pattern rounds as in ml_dtypes; NaN stays NaN, infinity infinity."""
    values = patterns.view(np.float32)
    rounded = float32_to_bf16(values)
    assert rounded.dtype == np.uint16
    assert rounded.shape == values.shape
    with np.errstate(invalid="ignore"):
        expected = values.astype(ml_dtypes.bfloat16).astype(np.float32)
    assert np.array_equal(bf16_to_float32(rounded), expected, equal_nan=True)


def test_bf16_ties_and_edges() -> None:
    """Ties go to even; the largest float32 rounds to infinity; signs stay."""
    values = np.array([0x3F808000, 0x3F818000, 0x7F7FFFFF, 0x80000000, 0xFFFFFFFF], dtype=np.uint32)
    expected = [0x3F80, 0x3F82, 0x7F80, 0x8000, 0xFFFF]
    assert float32_to_bf16(values.view(np.float32)).tolist() == expected


def test_bf16_array_of_ml_dtypes_goes_out() -> None:
    """An array of ml_dtypes' bfloat16 is sent as it is."""
    array = np.array([1.5, -2, np.inf], dtype=ml_dtypes.bfloat16)
    assert bytes(to_raw(array, "BF16")) == array.tobytes()


def test_bf16_needs_float32() -> None:
    """float64 would be rounded twice, so it is refused."""
    with pytest.raises(TensorError, match="float32 values are needed, and float64 came"):
        float32_to_bf16(np.zeros(1))  # type: ignore[arg-type]
