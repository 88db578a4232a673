"""What a run of the fuzzer begins with: right ones of everything, some that are nearly right."""

from __future__ import annotations

import gzip
import io
import struct
import zlib
from collections.abc import Callable, Mapping

import numpy as np
from google.protobuf import json_format, text_format

from fuzz import files, messages
from headrace_proto.datatypes import DATATYPES
from headrace_proto.tensors import to_raw
from headrace_proto.v1 import inference_pb2 as pb
from headrace_proto.v1 import model_config_pb2 as config_pb
from helpers.bombs import gzip_zeros

Body = Callable[[bytes], None]

BODIES: Mapping[str, Body] = {
    "wire": messages.wire,
    "tensors": messages.tensors,
    "request": messages.request,
    "inflate": messages.inflate,
    "config": files.config,
    "json": files.json_config,
    "plan": files.plan,
    "replay": files.replay,
}

_CONFIGS = (
    'name: "m" platform: "onnxruntime_onnx" max_batch_size: 8',
    """input [ { name: "x" data_type: TYPE_FP32 dims: [ 4 ] }, { name: "s" data_type: TYPE_STRING
    dims: 1 optional: true } ]
    output { name: "y" data_type: TYPE_FP32 dims: [ -1 ] reshape { shape: [ ] } }
    output { name: "l" data_type: TYPE_INT64 dims: [ 1 ] label_filename: "labels.txt" }
    max_batch_size: 4""",
    """max_batch_size: 16 dynamic_batching { preferred_batch_size: [ 4, 8 ]
    max_queue_delay_microseconds: 100 preserve_ordering: true priority_levels: 2
    default_priority_level: 1 default_queue_policy { timeout_action: DELAY max_queue_size: 3
    default_timeout_microseconds: 9 allow_timeout_override: true }
    priority_queue_policy { key: 1 value { max_queue_size: 9 } } }""",
    """instance_group [ { count: 2 kind: KIND_CPU profile: [ "0", "1" ] } ]
    version_policy { specific { versions: [ 1, 3 ] } } default_model_filename: "other.onnx" """,
    """model_warmup { name: "w" batch_size: 2 count: 3 inputs { key: "x" value { data_type:
    TYPE_FP32 dims: 4 zero_data: true } } }
    optimization { cuda { graphs: true graph_spec { batch_size: 2 input { key: "x" value { dim: 4
    } } graph_lower_bound { batch_size: 1 } } } }""",
    """parameters { key: "k" value: { string_value: "v" } } response_cache { enable: true }
    cc_model_filenames [ { key: "8.0" value: "a.plan" } ]
    sequence_batching { max_sequence_idle_microseconds: 5000000 direct { } control_input { name:
    "START" control { kind: CONTROL_SEQUENCE_START fp32_false_true: [ 0, 1 ] } } }""",
    """ensemble_scheduling { step { model_name: "a" model_version: -1 input_map { key: "x" value:
    "x" } output_map { key: "y" value: "y" } } }""",
)


def seeds(name: str) -> list[bytes]:
    """Give the beginnings for one body."""
    return _SEEDS[name]()


def _requests() -> list[bytes]:
    def one(model: str, **inputs: tuple[str, list[int], bytes]) -> pb.ModelInferRequest:
        request = pb.ModelInferRequest(model_name=model, id="7")
        for name, (datatype, shape, raw) in inputs.items():
            request.inputs.add(name=name, datatype=datatype, shape=shape)
            request.raw_input_contents.append(raw)
        return request

    pair = one("m", a=("FP32", [1, 4], bytes(16)), b=("INT32", [1, 2], bytes(8)))
    pair.parameters["timeout"].int64_param = 1000
    pair.parameters["priority"].uint64_param = 1
    classes = one("m", b=("INT32", [2, 2], bytes(16)), a=("FP32", [2, 4], bytes(32)))
    classes.outputs.add(name="p").parameters["classification"].int64_param = 3
    typed = pb.ModelInferRequest(model_name="f", model_version="1")
    tensor = typed.inputs.add(name="x", datatype="UINT8", shape=[2, 2])
    tensor.contents.uint_contents.extend([1, 2, 3, 255])
    text = one("t", c=("BYTES", [2, 1], b"\2\0\0\0ab\0\0\0\0"))
    shared = one("f", x=("UINT8", [1, 1], b"a"))
    shared.inputs[0].parameters["shared_memory_region"].string_param = "r"
    shared.inputs[0].parameters["shared_memory_byte_size"].int64_param = 1
    overflow = one("f", x=("UINT8", [2**62, 4], b"abcd"))
    every = (pair, classes, typed, text, shared, overflow)
    return [b"", *(each.SerializeToString() for each in every)]


def _tensors() -> list[bytes]:
    names = sorted(DATATYPES)
    found = [bytes([names.index("BYTES"), 2]) + b"\2\0\0\0ab\0\0\0\0"]
    for number, name in enumerate(names):
        head = bytes([number, 3])
        field = DATATYPES[name].contents_field
        if name != "BYTES":
            array = np.arange(3).astype(DATATYPES[name].numpy)
            found.append(head + bytes(to_raw(array, name)))
        if field is not None:
            contents = pb.InferTensorContents()
            values = [b"a", b"", b"c"] if name == "BYTES" else [0, 1, 0]
            getattr(contents, field).extend(values)
            found.append(head + contents.SerializeToString())
    return found


def _packed() -> list[bytes]:
    text = b"headrace " * 30
    bomb = gzip_zeros(1)
    return [
        gzip.compress(text, mtime=0),
        zlib.compress(text),
        zlib.compress(b"", 0),
        bomb,
        bomb[:90],
    ]


def _json() -> list[bytes]:
    parsed = [text_format.Parse(text, config_pb.ModelConfig()) for text in _CONFIGS]
    return [json_format.MessageToJson(each).encode() for each in parsed]


def _plans() -> list[bytes]:
    standard = b"ftrt" + bytes(20) + bytes([10, 1, 0, 9]) + bytes(40)
    rtx = bytearray(b"vtrt" + bytes(92))
    struct.pack_into("<Q", rtx, 16, len(rtx))
    struct.pack_into("<I", rtx, 32, 0x41)
    wrapped = struct.pack("<I", 2) + b"{}" + standard
    return [standard, bytes(rtx), wrapped, b"\x08\x08", b"PK\3\4", b"version https://git-lfs.x"]


def _arrivals() -> list[bytes]:
    texts = (b"0.5\n0.75\n2\n", b"0 0\n1 2\n# end\n", b"1e3, 2\n", b"")
    found = [bytes([kind]) + text for kind in (0, 2) for text in texts]
    for array in (np.array([0.0, 1.5]), np.array([[0, 0], [1, 2]]), np.array([b"a"]), np.zeros(0)):
        stream = io.BytesIO()
        np.save(stream, array)
        found += [bytes([kind]) + stream.getvalue() for kind in (1, 3)]
    return [*found, b"\1PK\3\4", b"\1\x93NUMPY"]


_SEEDS: Mapping[str, Callable[[], list[bytes]]] = {
    "wire": _requests,
    "tensors": _tensors,
    "request": _requests,
    "inflate": _packed,
    "config": lambda: [text.encode() for text in _CONFIGS],
    "json": _json,
    "plan": _plans,
    "replay": _arrivals,
}
