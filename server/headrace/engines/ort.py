"""ONNX Runtime as an engine: the embedded default on the CPU, the CUDA provider on a GPU.

On the CPU one session serves all slots: a run is thread-safe and keeps no state. With the CUDA
provider every slot has a session of its own on the slot's stream, because a session is tied to one
stream. Inputs and outputs are bound to fixed addresses once a (block or lane, layout) and run many
times; for a small model that halves the cost of a call (`docs/benchmarks.md`).

The only file that imports onnxruntime.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Before the import: its wheels for Linux report usage to their maker, and a server must not.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import onnxruntime as ort

from headrace.device.base import Device, Stream
from headrace.engines.base import Binding, Layout, Shape, Signature, TensorSpec
from headrace.engines.ort_run import FeedRun, element_type, run_bound
from headrace.engines.ort_shapes import find_symbols
from headrace.errors import ConfigError, EngineError, HeadraceError

log = logging.getLogger(__name__)

PLATFORM = "onnxruntime_onnx"

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


@dataclass(frozen=True, slots=True)
class OrtOptions:
    """How sessions are made.

    Attributes:
        intra_op_threads: Threads inside one run; 1 leaves the cores to the slots.
        use_cuda_graph: Let the CUDA provider capture and replay its own graph (fixed shapes only).
    """

    intra_op_threads: int = 1
    use_cuda_graph: bool = False


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
        self._session: ort.InferenceSession | None = _open_session(
            path, device, self._options, None
        )
        self.signature = _signature(self._session, path)
        self._symbols = find_symbols(self._session, self.signature, path)
        self._refuse_what_cannot_be_fed(path)

    def _refuse_what_cannot_be_fed(self, path: Path) -> None:
        """BF16 has no numpy type, so it must be bound, which needs all output shapes."""
        if self._symbols is not None:
            return
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
        session = self._session
        if session is None:
            raise EngineError(f"{self._path.name} is closed")
        if not self.is_blocking:
            session = _open_session(self._path, self._device, self._options, stream)
        return OrtContext(session, self.signature, self._device)

    def close(self) -> None:
        """Drop the session; it goes with its last context."""
        self._session = None


class OrtContext:
    """What one slot runs: a session, and bindings to fixed addresses."""

    def __init__(self, session: ort.InferenceSession, signature: Signature, device: Device) -> None:
        self._session: ort.InferenceSession | None = session
        self._signature = signature
        self._device_type = "cuda" if device.kind == "cudart" else "cpu"
        self._device_index = device.index if device.kind == "cudart" else 0
        # None on the CPU: the runtime's wrapper looks into given options at every run, for 2 us.
        self._run_options: ort.RunOptions | None = None
        if self._device_type == "cuda":
            self._run_options = ort.RunOptions()
            # The slot's stream and event say when the run is done; the run must not wait for it.
            self._run_options.add_run_config_entry("disable_synchronize_execution_providers", "1")

    def bind(
        self, layout: Layout, input_ptrs: Sequence[int], output_ptrs: Sequence[int]
    ) -> Binding:
        """Tie the layout to addresses: device addresses on a GPU, the block's on the CPU."""
        binding = Binding(layout, tuple(input_ptrs), tuple(output_ptrs))
        session = self._open_session()
        if layout.output_shapes is None:
            if self._device_type == "cuda":
                raise EngineError(
                    "outputs whose shape only the run can tell, and BYTES, are not served on a GPU"
                )
            binding.prepared = FeedRun(session, self._signature, binding)
            return binding
        io = session.io_binding()
        where = (self._device_type, self._device_index)
        inputs = zip(self._signature.inputs, layout.input_shapes, input_ptrs, strict=True)
        for spec, shape, ptr in inputs:
            io.bind_input(spec.name, *where, element_type(spec.datatype), list(shape), ptr)
        outputs = zip(self._signature.outputs, layout.output_shapes, output_ptrs, strict=True)
        for spec, shape, ptr in outputs:
            io.bind_output(spec.name, *where, element_type(spec.datatype), list(shape), ptr)
        binding.prepared = run_bound(session, io, self._run_options)
        return binding

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
        self._session = None

    def _open_session(self) -> ort.InferenceSession:
        if self._session is None:
            raise EngineError("the execution context is closed")
        return self._session


def open_signature(path: Path) -> Signature:
    """Return a model's signature without keeping it; for `inspect` and `check`.

    Raises:
        ConfigError: The file is not a model that this runtime can load.
    """
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    return _signature(_load(path, options, ["CPUExecutionProvider"]), path)


def first_line(error: Exception) -> str:
    """Return what ONNX Runtime says, without its prefix and its stack."""
    text = str(error).strip().splitlines()
    return text[0] if text else type(error).__name__


def _open_session(
    path: Path, device: Device, options: OrtOptions, stream: Stream | None
) -> ort.InferenceSession:
    settings = ort.SessionOptions()
    settings.intra_op_num_threads = options.intra_op_threads
    settings.inter_op_num_threads = 1
    settings.log_severity_level = 3  # errors: our own log says the rest
    # Spinning would take a core from the other slots between two operators.
    settings.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if device.kind != "cudart":
        return _load(path, settings, ["CPUExecutionProvider"])
    if "CUDAExecutionProvider" not in ort.get_available_providers():
        raise ConfigError(
            "this onnxruntime has no CUDA provider; install headrace-server[onnxruntime-gpu], or "
            "serve on the CPU with --device host",
            path=str(path),
        )
    cuda: dict[str, Any] = {
        "device_id": str(device.index),
        "do_copy_in_default_stream": "1",  # copies inside the graph stay on the slot's stream
        "enable_cuda_graph": "1" if options.use_cuda_graph else "0",
    }
    if stream is not None:
        cuda["user_compute_stream"] = str(int(stream.handle))
    return _load(path, settings, [("CUDAExecutionProvider", cuda), "CPUExecutionProvider"])


def _load(
    path: Path, settings: ort.SessionOptions, providers: Sequence[Any]
) -> ort.InferenceSession:
    if not path.is_file():
        raise ConfigError("there is no such file", path=str(path))
    try:
        return ort.InferenceSession(str(path), settings, providers=list(providers))
    except Exception as error:
        raise ConfigError(
            f"ONNX Runtime cannot load it: {first_line(error)}", path=str(path)
        ) from error


def _signature(session: ort.InferenceSession, path: Path) -> Signature:
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
