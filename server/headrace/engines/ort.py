"""ONNX Runtime as an engine: the embedded default on the CPU, the CUDA provider on a GPU.

On the CPU one session serves all slots: a run is thread-safe and keeps no state. With the CUDA
provider every slot has a session of its own on the slot's stream, because a session is tied to one
stream. Inputs and outputs are bound to fixed addresses once a (block or lane, layout) and run many
times; for a small model that halves the cost of a call (`docs/benchmarks.md`).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakSet

from headrace.device.base import Device, Stream
from headrace.engines.base import Binding, Layout, Shape, Signature, TensorSpec
from headrace.engines.onnx_random import random_operators
from headrace.engines.ort_run import FeedRun, element_type, run_bound, run_rebound
from headrace.engines.ort_session import (
    OpenSession,
    OrtOptions,
    cpu_operators,
    first_line,
    gpu_run_options,
    open_cpu_session,
    open_cuda_session,
    open_signature_session,
)
from headrace.engines.ort_shapes import find_symbols
from headrace.errors import ConfigError, EngineError, HeadraceError

log = logging.getLogger(__name__)

PLATFORM = "onnxruntime_onnx"

__all__ = ["PLATFORM", "OrtContext", "OrtEngine", "OrtOptions", "open_signature"]

# ONNX Runtime's names for tensor types and ours.
DATATYPES = {
    "tensor(bool)": "BOOL",
    "tensor(uint8)": "UINT8",
    "tensor(uint16)": "UINT16",
    "tensor(uint32)": "UINT32",
    "tensor(uint64)": "UINT64",
    "tensor(int8)": "INT8",
    "tensor(int16)": "INT16",
    "tensor(int32)": "INT32",
    "tensor(int64)": "INT64",
    "tensor(float16)": "FP16",
    "tensor(float)": "FP32",
    "tensor(double)": "FP64",
    "tensor(bfloat16)": "BF16",
    "tensor(string)": "BYTES",
}


class OrtEngine:
    """A loaded ONNX model."""

    platform = PLATFORM
    weights_bytes = 0  # ONNX Runtime does not tell
    profile_rows: tuple[int, ...] = ()

    def __init__(self, path: Path, device: Device, options: OrtOptions | None = None) -> None:
        """Load the model.

        Raises:
            ConfigError: The file is not a model that this runtime can load.
        """
        self._path = path
        self._device = device
        self._options = options or OrtOptions()
        self.is_blocking = device.kind != "cudart"
        self.pads_to_graphs = True  # a launch of ONNX Runtime's takes the host some 5 us, each
        self._is_open = True
        self._has_warned = False
        self._shared: OpenSession | None = None  # of all slots, on the CPU
        self._bindings: WeakSet[Binding] = WeakSet()  # to it: blocks keep them for any slot
        opened = self._open(None)
        if self.is_blocking:
            self._shared = opened
        else:
            _warn_of_cpu_operators(opened.session, path)
        self.is_capturable = not self.is_blocking and not _is_random(path)
        self.signature = _signature(opened.session, path)
        self._symbols = find_symbols(opened.session, self.signature, path)
        self._refuse_what_cannot_be_bound(path)

    def _open(self, stream: Stream | None) -> OpenSession:
        if self.is_blocking:
            return open_cpu_session(self._path, self._options)
        return open_cuda_session(self._path, self._device, self._options, stream)

    def _refuse_what_cannot_be_bound(self, path: Path) -> None:
        """Binding needs all output shapes; what has no numpy type, and a GPU, need binding."""
        if self._symbols is not None:
            return
        if not self.is_blocking:
            raise ConfigError(
                "BYTES, and outputs whose shapes do not follow from the names of the inputs' "
                "dimensions, are not served on a GPU; serve it on the CPU with --device host",
                path=str(path),
            )
        for spec in (*self.signature.inputs, *self.signature.outputs):
            if spec.datatype == "BF16":
                raise ConfigError(
                    "BF16 is served only in models without BYTES whose output shapes follow from "
                    "the input shapes; give the output dimensions the inputs' names, or cast to "
                    "FP32 in the graph",
                    path=str(path),
                    field=spec.name,
                )

    def use_profiles(self, wanted: Sequence[int]) -> None:
        """Do nothing: an ONNX model takes all its shapes at any time."""

    def trial_shapes(self) -> Sequence[tuple[Shape, ...]]:
        """Return the smallest shapes: every dynamic dimension 1."""
        return [
            tuple(
                tuple(1 if dim is None else dim for dim in spec.shape)
                for spec in self.signature.inputs
            )
        ]

    def check_inputs(self, shapes: Sequence[Shape]) -> None:
        """Accept every shape: the model's own dimensions are checked by the front door."""

    def output_shapes(self, shapes: Sequence[Shape]) -> tuple[Shape, ...] | None:
        """Return the output shapes where the graph tells them and keeps its word; else None."""
        return None if self._symbols is None else self._symbols.output_shapes(shapes)

    def open_context(self, stream: Stream) -> OrtContext:
        """Open a context; on a GPU it is a session of its own on this stream."""
        if not self._is_open:
            raise EngineError(f"{self._path.name} is closed")
        if self._shared is not None:
            return OrtContext(self._shared, self.signature, bindings=self._bindings)
        opened = self._open(stream)
        if not opened.stays_on_gpu and not self._has_warned:
            self._has_warned = True
            log.warning(
                "%s does not stay on the GPU from begin to end: each run waits for it, and keeps "
                "other models waiting",
                self._path,
            )
        return OrtContext(opened, self.signature, self._device, stream)

    def close(self) -> None:
        """Drop the session, also from bindings that blocks keep; it goes with its last context."""
        self._is_open = False
        self._shared = None
        for binding in self._bindings:
            binding.prepared = None


class OrtContext:
    """What one slot runs: a session, and bindings to fixed addresses."""

    def __init__(
        self,
        opened: OpenSession,
        signature: Signature,
        device: Device | None = None,
        stream: Stream | None = None,
        *,
        bindings: WeakSet[Binding] | None = None,
    ) -> None:
        """Keep a session; with a GPU, on which stream it runs; else note bindings in `bindings`."""
        self._opened: OpenSession | None = opened
        self._signature = signature
        self._stream = stream
        self._where = ("cpu", 0) if device is None else ("cuda", device.index)
        # None on the CPU: the runtime's wrapper looks into given options at every run, for 2 us.
        self._run_options = None if device is None else gpu_run_options(opened)
        self._bindings = bindings

    def bind(
        self, layout: Layout, input_ptrs: Sequence[int], output_ptrs: Sequence[int]
    ) -> Binding:
        """Tie the layout to addresses: device addresses on a GPU, the block's on the CPU."""
        opened = self._opened
        if opened is None:
            raise EngineError("the execution context is closed")
        binding = Binding(layout, tuple(input_ptrs), tuple(output_ptrs))
        if self._bindings is not None:
            self._bindings.add(binding)
        if layout.output_shapes is None:
            binding.prepared = FeedRun(opened.session, self._signature, binding)
            return binding
        if opened.stays_on_gpu or self._stream is None:
            io = self._bound(opened, binding)
            binding.prepared = run_bound(opened.session, io, self._run_options)
            return binding
        bind = partial(self._bound, opened, binding)
        binding.prepared = run_rebound(
            opened.session, bind, self._stream.synchronize, self._run_options
        )
        binding.reads_host = True
        return binding

    def _bound(self, opened: OpenSession, binding: Binding) -> Any:
        """Tell a session where the tensors of a run lie."""
        io, layout = opened.session.io_binding(), binding.layout
        assert layout.output_shapes is not None
        inputs = zip(self._signature.inputs, layout.input_shapes, binding.input_ptrs, strict=True)
        for spec, shape, ptr in inputs:
            io.bind_input(spec.name, *self._where, element_type(spec.datatype), list(shape), ptr)
        outputs = zip(
            self._signature.outputs, layout.output_shapes, binding.output_ptrs, strict=True
        )
        for spec, shape, ptr in outputs:
            io.bind_output(spec.name, *self._where, element_type(spec.datatype), list(shape), ptr)
        return io

    def enqueue(self, binding: Binding) -> None:
        """Run the model: computes before it returns on the CPU, enqueues on a GPU."""
        try:
            binding.prepared()
        except HeadraceError:
            raise
        except Exception as error:
            raise EngineError(f"ONNX Runtime failed: {first_line(error)}") from error

    def close(self) -> None:
        """Drop the session."""
        self._opened = None


def open_signature(path: Path) -> Signature:
    """Return a model's signature without keeping it; for `inspect` and `check`.

    Raises:
        ConfigError: The file is not a model that this runtime can load.
    """
    return _signature(open_signature_session(path), path)


def _warn_of_cpu_operators(session: Any, path: Path) -> None:
    operators = cpu_operators(session)
    if operators:
        log.warning(
            "%s: on a GPU, but these operators run on the CPU: %s",
            path,
            ", ".join(f"{name} ({count})" for name, count in operators.most_common()),
        )


def _is_random(path: Path) -> bool:
    """Say whether runs draw random numbers: their seeds come from the host, once for a graph."""
    operators = random_operators(path)
    if operators:
        log.info("%s: a CUDA graph would repeat what %s drew", path, ", ".join(sorted(operators)))
    return bool(operators)


def _signature(session: Any, path: Path) -> Signature:
    def specs(nodes: Sequence[Any], kind: str) -> tuple[TensorSpec, ...]:
        return tuple(_spec(node, kind, path) for node in nodes)

    return Signature(specs(session.get_inputs(), "input"), specs(session.get_outputs(), "output"))


def _spec(node: Any, kind: str, path: Path) -> TensorSpec:
    datatype = DATATYPES.get(node.type)
    if datatype is None:
        raise ConfigError(
            f"its type is {node.type}; headrace serves {', '.join(DATATYPES)}",
            path=str(path),
            field=f"{kind} {node.name}",
        )
    shape = tuple(dim if isinstance(dim, int) and dim >= 0 else None for dim in node.shape)
    return TensorSpec(node.name, datatype, shape)
