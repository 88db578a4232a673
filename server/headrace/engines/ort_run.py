"""The two ways to run a session: bound to fixed addresses, or fed with arrays.

Feeding is for what cannot be bound: BYTES tensors, which ONNX Runtime keeps as its own strings, and
outputs whose shape only the run can tell. Its outputs are read from the runtime's own arrays.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.engines.base import Binding, Shape, Signature, TensorSpec
from headrace.engines.layout import num_elements
from headrace.errors import RequestError
from headrace_proto.datatypes import DATATYPES
from headrace_proto.tensors import TensorError, decode_bytes, encode_bytes

# onnx.TensorProto.DataType, by our names (https://onnx.ai/onnx/repo-docs/IR.html).
ELEMENT_TYPES = {
    "FP32": 1,
    "UINT8": 2,
    "INT8": 3,
    "UINT16": 4,
    "INT16": 5,
    "INT32": 6,
    "INT64": 7,
    "BYTES": 8,
    "BOOL": 9,
    "FP16": 10,
    "FP64": 11,
    "UINT32": 12,
    "UINT64": 13,
    "BF16": 16,
}


def element_type(datatype: str) -> int:
    """Return ONNX's number for a datatype."""
    return ELEMENT_TYPES[datatype]


def run_bound(session: Any, io: Any, options: Any) -> Callable[[], None]:
    """Return a call that runs the session on its binding, with as little around it as can be."""
    run = session.run_with_iobinding

    def call() -> None:
        run(io, options)

    return call


def run_rebound(
    session: Any, bind: Callable[[], Any], wait: Callable[[], None], options: Any
) -> Callable[[], None]:
    """Return a call for a model that takes part of its inputs on the CPU though it is on a GPU.

    ONNX Runtime copies such inputs when they are bound, so they are bound for each run, once what
    is on the stream before them, their own copy to the GPU, is done.
    """

    def call() -> None:
        wait()
        session.run_with_iobinding(bind(), options)

    return call


class FeedRun:
    """Runs a session on arrays made from the block; a call."""

    def __init__(self, session: Any, signature: Signature, binding: Binding) -> None:
        self._session = session
        self._signature = signature
        self._binding = binding
        self._names = [spec.name for spec in signature.outputs]

    def __call__(self) -> None:
        """Run, and leave (shape, bytes) of every output in the binding's results."""
        layout = self._binding.layout
        feeds = {
            spec.name: _array(spec, shape, ptr, size)
            for spec, shape, ptr, size in zip(
                self._signature.inputs,
                layout.input_shapes,
                self._binding.input_ptrs,
                layout.input_sizes,
                strict=True,
            )
        }
        outputs = self._run(feeds)
        self._binding.results = [
            _raw(spec, array) for spec, array in zip(self._signature.outputs, outputs, strict=True)
        ]

    def _run(self, feeds: dict[str, Any]) -> list[Any]:
        outputs: list[Any] = self._session.run(self._names, feeds)
        return outputs


def _array(spec: TensorSpec, shape: Shape, ptr: int, size_bytes: int) -> npt.NDArray[Any]:
    """View (or, for BYTES, decode) a tensor that lies at `ptr`, in C order."""
    memory = memoryview((ctypes.c_ubyte * size_bytes).from_address(ptr)).cast("B")
    if spec.datatype == "BYTES":
        try:
            elements = decode_bytes(memory, num_elements(shape))
            texts = [element.decode() for element in elements]
        except TensorError as error:
            raise RequestError(f"input '{spec.name}': {error}") from error
        except UnicodeDecodeError as error:
            raise RequestError(
                f"input '{spec.name}' has an element that is not UTF-8 ({error.reason} at its byte "
                f"{error.start}), which ONNX strings are; a model for raw bytes takes UINT8"
            ) from error
        return np.array(texts, dtype=object).reshape(shape)
    return np.frombuffer(memory, dtype=DATATYPES[spec.datatype].numpy).reshape(shape)


def _raw(spec: TensorSpec, array: npt.NDArray[Any]) -> tuple[Shape, memoryview | bytes]:
    if spec.datatype == "BYTES":
        return array.shape, encode_bytes(array.ravel().tolist())
    return array.shape, np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
