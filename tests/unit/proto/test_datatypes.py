"""The table of datatypes agrees with numpy, with the contract and with an unmodified client."""

from __future__ import annotations

from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np
import pytest
from google.protobuf.descriptor import FieldDescriptor
from tritonclient.utils import np_to_triton_dtype, triton_to_np_dtype

from headrace_proto import datatypes
from headrace_proto.datatypes import DATATYPES, TensorError
from headrace_proto.v1 import inference_pb2 as pb
from headrace_proto.v1 import model_config_pb2 as config_pb

if TYPE_CHECKING:
    from numpy.typing import DTypeLike


def test_every_config_type_has_a_datatype() -> None:
    """The table covers the enum of the configuration but for TYPE_INVALID, one to one."""
    numbers = {datatypes.to_config(name) for name in DATATYPES}
    assert numbers == set(config_pb.DataType.values()) - {config_pb.TYPE_INVALID}
    assert [datatypes.from_config(datatypes.to_config(name)) for name in DATATYPES] == [*DATATYPES]


def test_config_names_follow_the_wire_names() -> None:
    """A config says TYPE_ and the wire's name, and TYPE_STRING for BYTES."""
    for name in DATATYPES:
        expected = "TYPE_STRING" if name == "BYTES" else f"TYPE_{name}"
        assert config_pb.DataType.Name(datatypes.to_config(name)) == expected


@pytest.mark.parametrize("name", sorted(set(DATATYPES) - {"BF16"}))
def test_numpy_agrees_with_the_peer(name: str) -> None:
    """Both directions give what tritonclient gives."""
    assert DATATYPES[name].numpy == np.dtype(triton_to_np_dtype(name))
    assert datatypes.from_numpy(DATATYPES[name].numpy) == name
    assert np_to_triton_dtype(DATATYPES[name].numpy) == name


def test_item_sizes() -> None:
    """Sizes are those of the element on the wire, and 0 where elements differ in size."""
    sizes = {name: each.itemsize_bytes for name, each in DATATYPES.items()}
    assert sizes.pop("BYTES") == 0
    assert sizes["BF16"] == np.dtype(ml_dtypes.bfloat16).itemsize
    assert sizes == {name: DATATYPES[name].numpy.itemsize for name in sizes}


def test_contents_fields_hold_their_type() -> None:
    """Each contents field exists, and its elements have the kind of the datatype."""
    kinds = {
        FieldDescriptor.CPPTYPE_BOOL: "b",
        FieldDescriptor.CPPTYPE_INT32: "i",
        FieldDescriptor.CPPTYPE_INT64: "i",
        FieldDescriptor.CPPTYPE_UINT32: "u",
        FieldDescriptor.CPPTYPE_UINT64: "u",
        FieldDescriptor.CPPTYPE_FLOAT: "f",
        FieldDescriptor.CPPTYPE_DOUBLE: "f",
        FieldDescriptor.CPPTYPE_STRING: "O",
    }
    fields = pb.InferTensorContents.DESCRIPTOR.fields_by_name
    used = {each.contents_field: each for each in DATATYPES.values() if each.contents_field}
    assert set(used) == set(fields)
    for name, each in used.items():
        assert kinds[fields[name].cpp_type] == each.numpy.kind
    without = {name for name, each in DATATYPES.items() if each.contents_field is None}
    assert without == {"FP16", "BF16"}


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        (">f4", "FP32"),
        (">i8", "INT64"),
        ("S3", "BYTES"),
        ("U3", "BYTES"),
        (bool, "BOOL"),
        (ml_dtypes.bfloat16, "BF16"),
    ],
)
def test_from_numpy_sees_the_kind(dtype: DTypeLike, name: str) -> None:
    """Byte order, string widths and ml_dtypes' bfloat16 are understood."""
    assert datatypes.from_numpy(dtype) == name


@pytest.mark.parametrize("dtype", ["c16", "M8[s]", "m8[s]", "V4", ml_dtypes.float8_e4m3fn])
def test_from_numpy_refuses_the_rest(dtype: DTypeLike) -> None:
    """A dtype without a place on the wire is named, with those that have one."""
    with pytest.raises(TensorError, match=r"no datatype holds numpy's .* float32"):
        datatypes.from_numpy(dtype)


def test_unknown_names_and_numbers_are_refused() -> None:
    """The text has what came and what there is."""
    with pytest.raises(TensorError, match=r"'FP8' is unknown; expected one of BOOL, .* BYTES"):
        datatypes.find("FP8")
    with pytest.raises(TensorError, match="'fp32' is unknown"):
        datatypes.to_config("fp32")
    for number in (0, 15, -1):
        with pytest.raises(TensorError, match=rf"data_type {number} .* TYPE_FP32 \(11\)"):
            datatypes.from_config(number)
