"""The ONNX Runtime engine on the host device, run as a slot does: out of a block, into a block."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import onnxruntime

from headrace.device.host import HostDevice
from headrace.engines.base import Binding, Layout, Shape
from headrace.engines.layout import num_elements, plan_layout
from headrace.engines.ort import OrtContext, OrtEngine, OrtOptions
from headrace_proto.datatypes import DATATYPES
from load.models import DTYPES

Array = npt.NDArray[Any]
STALE = 0xC3  # what the block holds of another request


def raw_of(array: Array) -> bytes:
    """A tensor as the protocol has it: C order, BYTES framed by their lengths."""
    if array.dtype != object:
        return array.tobytes()
    elements = [e if isinstance(e, bytes) else e.encode() for e in array.ravel().tolist()]
    return b"".join(struct.pack("<I", len(element)) + element for element in elements)


def array_of(raw: bytes, datatype: str, shape: tuple[int, ...]) -> Array:
    """The array that these bytes are."""
    if datatype != "BYTES":
        return np.frombuffer(raw, DTYPES[datatype][1]).reshape(shape)
    elements, at = [], 0
    while at < len(raw):
        (size,) = struct.unpack_from("<I", raw, at)
        elements.append(raw[at + 4 : at + 4 + size])
        at += 4 + size
    array = np.empty(len(elements), object)
    array[:] = elements
    return array.reshape(shape)


def direct(path: Path, *inputs: Array) -> list[Array]:
    """What ONNX Runtime itself answers, one thread, on the CPU."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [node.name for node in session.get_inputs()]
    outputs: list[Array] = session.run(None, dict(zip(names, inputs, strict=True)))
    return outputs


class OrtRig:
    """A loaded model, and runs of it on blocks full of stale bytes."""

    def __init__(self, path: Path, options: OrtOptions | None = None) -> None:
        self.device = HostDevice(0)
        self.engine = OrtEngine(path, self.device, options)
        self.stream = self.device.open_inline_stream()
        self.context = self.engine.open_context(self.stream)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def layout(self, *inputs: Array) -> Layout:
        """The layout of a call with these inputs."""
        return self._layout([array.shape for array in inputs], list(map(raw_of, inputs)))

    def _layout(self, shapes: Sequence[Shape], raws: Sequence[bytes]) -> Layout:
        outputs = self.engine.output_shapes(shapes)
        specs = self.engine.signature.outputs
        sizes = [
            num_elements(shape) * DATATYPES[spec.datatype].itemsize_bytes
            for spec, shape in zip(specs, outputs or (), strict=outputs is not None)
        ]
        return plan_layout(shapes, list(map(len, raws)), outputs, sizes)

    def run(self, *inputs: Array, context: OrtContext | None = None) -> list[Array]:
        """Run once, on a fresh block; arrays of the outputs."""
        return self.run_raw([array.shape for array in inputs], list(map(raw_of, inputs)), context)

    def run_raw(
        self, shapes: Sequence[Shape], raws: Sequence[bytes], context: OrtContext | None = None
    ) -> list[Array]:
        """Run on tensors of these shapes and bytes, whether they fit or not."""
        layout = self._layout(shapes, raws)
        block = self.device.alloc_host(max(layout.size_bytes, 1))
        block.view[:] = bytes([STALE]) * len(block.view)
        for offset, raw in zip(layout.input_offsets, raws, strict=True):
            block.view[offset : offset + len(raw)] = raw
        context = context or self.context
        binding = context.bind(
            layout,
            [block.ptr + offset for offset in layout.input_offsets],
            [block.ptr + offset for offset in layout.output_offsets],
        )
        try:
            context.enqueue(binding)
            return self._outputs(layout, binding, block.view)
        finally:
            del binding
            block.close()

    def close(self) -> None:
        """Close everything, from the inside out."""
        self.context.close()
        self.stream.close()
        self.engine.close()
        self.device.close()

    def _outputs(self, layout: Layout, binding: Binding, view: memoryview) -> list[Array]:
        specs = self.engine.signature.outputs
        if layout.output_shapes is None:
            found = [(shape, bytes(raw)) for shape, raw in binding.results]
        else:
            found = [
                (shape, bytes(view[offset : offset + size]))
                for shape, offset, size in zip(
                    layout.output_shapes, layout.output_offsets, layout.output_sizes, strict=True
                )
            ]
        return [
            array_of(raw, spec.datatype, shape)
            for spec, (shape, raw) in zip(specs, found, strict=True)
        ]
