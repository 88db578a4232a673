"""What the command line prints: tables for people, JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from headrace_client.message import InferResult
from headrace_client.tensor import Array
from headrace_proto.tensors import bf16_to_float32
from headrace_proto.v1 import inference_pb2 as pb

VALUES_SHOWN = 16  # more than that, and numpy's dots stand for the middle


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Lay rows out in columns that are as wide as their widest cell."""
    lines = [list(head), *map(list, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def message_json(messages: Message | Sequence[Message]) -> str:
    """Write messages as JSON, field names as in the protocol."""
    if isinstance(messages, Message):
        return json.dumps(MessageToDict(messages, preserving_proto_field_name=True), indent=2)
    dicts = [MessageToDict(each, preserving_proto_field_name=True) for each in messages]
    return json.dumps(dicts, indent=2)


def result_json(result: InferResult) -> str:
    """Write a whole reply as JSON; BYTES are text, where they are not UTF-8 with escapes."""
    outputs = {
        name: {
            "datatype": result.datatypes[name],
            "shape": list(array.shape),
            "data": _readable(array, result.datatypes[name]).tolist(),
        }
        for name, array in result.outputs.items()
    }
    reply: dict[str, Any] = {
        "model": result.model_name,
        "version": result.model_version,
        "id": result.request_id,
        "parameters": result.parameters,
        "outputs": outputs,
    }
    return json.dumps(reply)


def result_table(result: InferResult) -> str:
    """Show a reply's outputs, long ones abridged."""
    rows = []
    for name, array in result.outputs.items():
        datatype = result.datatypes[name]
        values = np.array2string(
            _readable(array, datatype).ravel(), threshold=VALUES_SHOWN, max_line_width=2**31
        )
        rows.append((name, datatype, shape_text(array.shape), values))
    return table(("OUTPUT", "DATATYPE", "SHAPE", "VALUES"), rows)


def metadata_text(metadata: pb.ModelMetadataResponse) -> str:
    """Show what a model is and takes."""
    rows = [
        (kind, each.name, each.datatype, shape_text(each.shape))
        for kind, tensors in (("input", metadata.inputs), ("output", metadata.outputs))
        for each in tensors
    ]
    return (
        f"{metadata.name}, {metadata.platform}, versions {', '.join(metadata.versions)}\n\n"
        + table(("TENSOR", "NAME", "DATATYPE", "SHAPE"), rows)
    )


def shape_text(shape: Sequence[int]) -> str:
    """Write a shape as in a config: ``[-1, 64]``."""
    return f"[{', '.join(map(str, shape))}]"


def _readable(array: Array, datatype: str) -> Array:
    if datatype == "BF16":
        return bf16_to_float32(array)
    if datatype == "BYTES":
        texts = [element.decode("utf-8", "backslashreplace") for element in array.ravel()]
        return np.array(texts, dtype=object).reshape(array.shape)
    return array
