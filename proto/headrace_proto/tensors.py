"""Converts tensors between numpy, typed contents and the bytes of the protocol.

On the wire a tensor is its elements in C order, little-endian; BYTES elements are framed as
`headrace_proto.framing` says. numpy has no BF16: arrays hold its bit patterns in uint16.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace_proto.datatypes import TensorError, find
from headrace_proto.framing import check_bytes, decode_bytes, encode_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from typing_extensions import Buffer

    from headrace_proto.v1 import inference_pb2 as pb

__all__ = [
    "TensorError",
    "bf16_to_float32",
    "check_bytes",
    "contents_to_raw",
    "decode_bytes",
    "encode_bytes",
    "float32_to_bf16",
    "from_raw",
    "to_raw",
]

# What protobuf writes for these contents is, after a prefix, the tensor's own bytes: to take them
# costs 0.05 ms for 150,000 numbers, to read those one by one 4 ms.
_PACKED_AS_RAW = frozenset(("BOOL", "FP32", "FP64"))


def to_raw(array: NDArray[Any], datatype: str) -> bytes | memoryview:
    """Give the bytes of an array: a view of its memory, unless that is in another order.

    Args:
        array: Of the datatype's numpy type, in any strides and byte order. For BF16 bit patterns in
            uint16, or ml_dtypes' bfloat16; for BYTES strings or objects, as in `encode_bytes`.
        datatype: Name on the wire.

    Raises:
        TensorError: The array is of another type.
    """
    wanted = find(datatype)
    if wanted.name == "BYTES":
        if array.dtype.kind not in "OSU":
            raise TensorError(f"BYTES needs an array of bytes or str, and {array.dtype} came")
        return encode_bytes(array.ravel().tolist())
    if wanted.name == "BF16" and array.dtype.name == "bfloat16":
        array = array.view(np.uint16)
    if array.dtype.newbyteorder("<") != wanted.numpy:
        mend = "float32_to_bf16" if wanted.name == "BF16" else "astype"
        raise TensorError(
            f"{datatype} needs an array of {wanted.numpy}, and {array.dtype} came: use {mend}"
        )
    flat = np.ascontiguousarray(array, dtype=wanted.numpy).reshape(-1)
    return flat.view(np.uint8).data


def from_raw(buffer: Buffer, datatype: str, shape: Sequence[int]) -> NDArray[Any]:
    """Give the array that the bytes of a tensor hold: read-only, and a view where that is possible.

    Args:
        buffer: The tensor's bytes.
        datatype: Name on the wire; BF16 gives bit patterns in uint16, BYTES an array of objects.
        shape: The full shape; no dimension may be open.

    Raises:
        TensorError: The bytes do not fit the datatype and the shape.
    """
    wanted = find(datatype)
    if min(shape, default=0) < 0:
        raise TensorError(f"shape {list(shape)} has an open dimension; give every dimension")
    num_elements = prod(shape)
    view = memoryview(buffer)
    if wanted.name == "BYTES":
        elements = decode_bytes(view, num_elements)
        array = np.empty(len(elements), dtype=object)
        array[:] = elements
    elif view.nbytes == num_elements * wanted.itemsize_bytes:
        array = np.frombuffer(view, dtype=np.uint8).view(wanted.numpy)
        if wanted.name == "BOOL" and np.frombuffer(view, dtype=np.uint8).max(initial=0) > 1:
            array = np.frombuffer(view, dtype=np.uint8) != 0  # numpy's own bool is 0 or 1 only
    else:
        raise TensorError(
            f"{view.nbytes} bytes came for {datatype} of shape {list(shape)}, "
            f"which takes {num_elements * wanted.itemsize_bytes}"
        )
    array.flags.writeable = False
    try:
        return array.reshape(shape)
    except (ValueError, OverflowError) as error:  # too many dimensions, or 0 times a huge one
        raise TensorError(f"shape {list(shape)} is more than an array can have: {error}") from error


def contents_to_raw(contents: pb.InferTensorContents, datatype: str, num_elements: int) -> bytes:
    """Give the raw bytes of a tensor that came as typed values.

    Args:
        contents: The values; only the field of the datatype may be filled.
        datatype: Name on the wire.
        num_elements: What the shape says.

    Raises:
        TensorError: Another field, another count, or a value out of the datatype's range.
    """
    wanted = find(datatype)
    if wanted.contents_field is None:
        raise TensorError(f"{datatype} has no typed contents; send it in raw_input_contents")
    for field, _ in contents.ListFields():
        if field.name != wanted.contents_field:
            raise TensorError(f"{datatype} belongs in {wanted.contents_field}, not {field.name}")
    values = getattr(contents, wanted.contents_field)
    if len(values) != num_elements:
        raise TensorError(
            f"{wanted.contents_field} has {len(values)} elements, and the shape {num_elements}"
        )
    if wanted.name == "BYTES":
        return encode_bytes(values)
    if wanted.name in _PACKED_AS_RAW:
        return _packed(contents, num_elements * wanted.itemsize_bytes)
    wide = np.fromiter(values, dtype=np.dtype(f"<{wanted.numpy.kind}8"), count=num_elements)
    return _narrow(wide, datatype, wanted.numpy).tobytes()


def bf16_to_float32(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    """Give the values of BF16 bit patterns, exactly; the shape stays."""
    return (np.asarray(bits, dtype=np.uint32) << np.uint32(16)).view(np.float32)


def float32_to_bf16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Give the BF16 bit patterns of float32 values, to nearest, ties to even; the shape stays.

    Raises:
        TensorError: The array is of another type.
    """
    if values.dtype != np.float32:
        raise TensorError(f"float32 values are needed, and {values.dtype} came: use astype")
    bits = values.view(np.uint32)
    # A quiet NaN without low bits: rounding can neither carry it over nor end in infinity.
    bits = np.where(np.isnan(values), bits & 0xFFFF0000 | 0x00400000, bits)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def _packed(contents: pb.InferTensorContents, size_bytes: int) -> bytes:
    alone = type(contents)()
    alone.CopyFrom(contents)
    alone.DiscardUnknownFields()  # now the one field is all there is, and its payload comes last
    return alone.SerializeToString()[-size_bytes:] if size_bytes else b""


def _narrow(wide: NDArray[Any], datatype: str, dtype: np.dtype[Any]) -> NDArray[Any]:
    limits = np.iinfo(dtype)
    outside = np.flatnonzero((wide < limits.min) | (wide > limits.max))
    if outside.size:
        raise TensorError(
            f"element {outside[0]} is {wide[outside[0]]}, "
            f"and {datatype} holds {limits.min} to {limits.max}"
        )
    return wide.astype(dtype)
