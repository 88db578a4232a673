"""The 14 element types of the protocol: their names on the wire, in a config and in numpy."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace_proto.v1 import model_config_pb2 as config_pb

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import DTypeLike


class TensorError(ValueError):
    """A tensor is not what its datatype and shape say; the text has what came and what should."""


@dataclass(frozen=True, slots=True)
class Datatype:
    """One element type.

    Attributes:
        name: On the wire, such as ``FP32``.
        config_name: In a model's configuration, such as ``TYPE_FP32``.
        numpy: How arrays hold it, little-endian; BF16 as bit patterns in uint16, BYTES as objects.
        itemsize_bytes: Of one element; 0 for BYTES, whose elements differ in size.
        contents_field: The field of InferTensorContents for it; None: it travels as raw bytes only.
    """

    name: str
    config_name: str
    numpy: np.dtype[Any]
    itemsize_bytes: int
    contents_field: str | None


# name, config name, numpy, contents field
_TABLE: tuple[tuple[str, str, str, str | None], ...] = (
    ("BOOL", "TYPE_BOOL", "|b1", "bool_contents"),
    ("UINT8", "TYPE_UINT8", "|u1", "uint_contents"),
    ("UINT16", "TYPE_UINT16", "<u2", "uint_contents"),
    ("UINT32", "TYPE_UINT32", "<u4", "uint_contents"),
    ("UINT64", "TYPE_UINT64", "<u8", "uint64_contents"),
    ("INT8", "TYPE_INT8", "|i1", "int_contents"),
    ("INT16", "TYPE_INT16", "<i2", "int_contents"),
    ("INT32", "TYPE_INT32", "<i4", "int_contents"),
    ("INT64", "TYPE_INT64", "<i8", "int64_contents"),
    ("FP16", "TYPE_FP16", "<f2", None),
    ("FP32", "TYPE_FP32", "<f4", "fp32_contents"),
    ("FP64", "TYPE_FP64", "<f8", "fp64_contents"),
    ("BF16", "TYPE_BF16", "<u2", None),
    ("BYTES", "TYPE_STRING", "|O", "bytes_contents"),
)


def _datatype(name: str, config_name: str, code: str, contents_field: str | None) -> Datatype:
    dtype = np.dtype(code)
    itemsize_bytes = 0 if dtype.hasobject else dtype.itemsize
    return Datatype(name, config_name, dtype, itemsize_bytes, contents_field)


DATATYPES: Mapping[str, Datatype] = MappingProxyType({row[0]: _datatype(*row) for row in _TABLE})

_BY_NUMPY = {each.numpy: each.name for each in DATATYPES.values() if each.name != "BF16"}
_TO_CONFIG = {each.name: config_pb.DataType.Value(each.config_name) for each in DATATYPES.values()}
_FROM_CONFIG: dict[int, str] = {number: name for name, number in _TO_CONFIG.items()}


def find(name: str) -> Datatype:
    """Look a datatype up by its name on the wire.

    Raises:
        TensorError: No datatype has this name.
    """
    datatype = DATATYPES.get(name)
    if datatype is None:
        raise TensorError(f"datatype {name!r} is unknown; expected one of {', '.join(DATATYPES)}")
    return datatype


def from_numpy(dtype: DTypeLike) -> str:
    """Name the datatype of a numpy dtype.

    Byte order does not matter; strings and objects are BYTES; ``bfloat16`` of ml_dtypes is BF16.

    Raises:
        TensorError: No datatype holds elements of this kind.
    """
    found = np.dtype(dtype)
    if found.kind in "SUO":
        return "BYTES"
    if found.name == "bfloat16":
        return "BF16"
    name = _BY_NUMPY.get(found.newbyteorder("<"))
    if name is None:
        known = ", ".join(sorted({each.numpy.name for each in DATATYPES.values()} | {"bfloat16"}))
        raise TensorError(f"no datatype holds numpy's {found}; convert to one of {known}")
    return name


def to_config(name: str) -> config_pb.DataType.ValueType:
    """Give the DataType number of a model's configuration for a name on the wire.

    Raises:
        TensorError: No datatype has this name.
    """
    return _TO_CONFIG[find(name).name]


def from_config(value: int) -> str:
    """Name the datatype of a DataType number of a model's configuration.

    Raises:
        TensorError: The number is TYPE_INVALID or belongs to no datatype.
    """
    name = _FROM_CONFIG.get(value)
    if name is None:
        raise TensorError(f"data_type {value} is not a datatype; expected one of {_config_names()}")
    return name


def _config_names() -> str:
    return ", ".join(f"{each.config_name} ({_TO_CONFIG[each.name]})" for each in DATATYPES.values())
