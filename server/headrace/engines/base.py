"""What an engine must offer: a signature, contexts that enqueue, and where tensors lie.

An engine is immutable and shared by all slots of a model; an execution context belongs to one slot
and one stream for life. Shapes here are the engine's: the batch dimension, where there is one,
comes first, and `None` is a dynamic dimension.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from headrace.device.base import Stream

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One input or output of an engine."""

    name: str
    datatype: str  # the protocol's name: "FP32", "BYTES", …
    shape: tuple[int | None, ...]
    is_shape_tensor: bool = False  # values decide shapes; read on the host at enqueue


@dataclass(frozen=True, slots=True)
class Signature:
    """All inputs and outputs, in the engine's order."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """Where the tensors of one call lie in a block, and their shapes. Compared by identity.

    Inputs come first, then outputs; offsets and sizes are bytes from the start of the block and
    offsets are multiples of `ALIGNMENT_BYTES`. A lane's device buffer has the same layout, so that
    all inputs go over in one copy and all outputs come back in one. `output_shapes` is None when
    only the run can tell (then nothing is reserved for outputs; the binding hands them out).
    """

    input_shapes: tuple[Shape, ...]
    input_sizes: tuple[int, ...]
    input_offsets: tuple[int, ...]
    output_shapes: tuple[Shape, ...] | None
    output_sizes: tuple[int, ...]
    output_offsets: tuple[int, ...]
    inputs_end: int  # bytes [0, inputs_end) hold all inputs
    outputs_start: int  # bytes [outputs_start, size_bytes) hold all outputs
    size_bytes: int
    values: tuple[bytes, ...] = ()  # of the shape tensors among the inputs: they decide shapes
    padded_to: Layout | None = None  # what is run in its place, with more rows at the same offsets
    kind: Kind | None = None  # which other calls can run together with it; None: it runs alone

    @property
    def runs_as(self) -> Layout:
        """The layout that the engine is bound to."""
        return self.padded_to or self


class Kind:
    """Calls that differ in their number of rows alone, so that they can run together.

    Rows are the first dimension of every input and output of theirs. Compared by identity.

    Attributes:
        max_rows: The most that the engine takes of them in one batch.
    """

    __slots__ = ("_layouts", "_plan", "max_rows")

    def __init__(self, plan: Callable[[int], Layout], max_rows: int = 1 << 31) -> None:
        """Start without layouts; `plan` makes the one for a number of rows."""
        self.max_rows = max_rows
        self._plan = plan
        self._layouts: dict[int, Layout] = {}

    def layout(self, rows: int) -> Layout:
        """Return the layout of a batch of so many rows, `max_rows` at most; always the same one."""
        layout = self._layouts.get(rows)
        if layout is None:
            layout = self._layouts[rows] = self._plan(rows)
        return layout

    def forget(self) -> None:
        """Plan every layout anew: there are other sizes now that batches may be padded to."""
        self._layouts.clear()


@dataclass(slots=True, eq=False, weakref_slot=True)
class Binding:
    """One layout tied to addresses, prepared once and enqueued many times.

    `prepared` is the engine's own. `results` is filled by the run when `layout.output_shapes` is
    None: (shape, C-ordered bytes) per output. `outputs` is the same for outputs that always lie at
    the same place of a block, on unified devices.
    """

    layout: Layout
    input_ptrs: tuple[int, ...]
    output_ptrs: tuple[int, ...]
    prepared: Any = None
    reads_host: bool = False  # each enqueue reads or computes on the host: no graph can replay it
    results: list[tuple[Shape, memoryview | bytes]] = field(default_factory=list)
    outputs: list[tuple[Shape, memoryview | bytes]] | None = None


class ExecutionContext(Protocol):
    """Per-slot execution state; never used by two threads at once."""

    def bind(
        self, layout: Layout, input_ptrs: Sequence[int], output_ptrs: Sequence[int]
    ) -> Binding:
        """Tie a layout to addresses that the engine can use; may be slow, so callers keep it.

        Raises:
            EngineError: The engine cannot take these shapes or addresses.
        """

    def enqueue(self, binding: Binding) -> None:
        """Put the computation on the context's stream.

        Returns at once on a GPU. Where `Engine.is_blocking` it computes before it returns.

        Raises:
            EngineError: Refused; nothing was enqueued.
            DeviceError: The device failed.
        """

    def close(self) -> None:
        """Free the context; a second call does nothing. Its stream must be idle."""


class Engine(Protocol):
    """A deserialized model: weights and kernels, immutable, shared by all slots."""

    signature: Signature
    platform: str  # Triton's name: "tensorrt_plan", "onnxruntime_onnx"
    is_blocking: bool  # enqueue computes on the calling thread: needs a launcher or inline run
    weights_bytes: int  # device memory that all contexts share, 0 when the engine cannot tell
    profile_rows: tuple[int, ...]  # most rows of each optimization profile; empty without any

    def use_profiles(self, wanted: Sequence[int]) -> None:
        """Serve only these optimization profiles, all when none is named; before any context.

        Raises:
            ConfigError: There is no such profile.
        """

    def trial_shapes(self) -> Sequence[tuple[Shape, ...]]:
        """Return shapes of all inputs to warm up with: one set for each profile in use."""

    def check_inputs(self, shapes: Sequence[Shape]) -> None:
        """Refuse shapes that no optimization profile takes.

        Raises:
            RequestError: Names the input, its shape and the allowed range.
        """

    def output_shapes(self, shapes: Sequence[Shape]) -> tuple[Shape, ...] | None:
        """Return the output shapes for these input shapes, None when only a run can tell.

        With shapes the run must write every byte of every output at the addresses that it was bound
        to; without, it leaves the outputs in the binding's results.
        """

    def open_context(self, stream: Stream) -> ExecutionContext:
        """Open a context that will enqueue on `stream` and on no other."""

    def close(self) -> None:
        """Free the engine; a second call does nothing. Its contexts must be closed before."""


@runtime_checkable
class CapturableEngine(Protocol):
    """An engine that knows whether its contexts' work can be captured in CUDA graphs.

    `pads_to_graphs` says that a plain run costs the host more than rows of padding cost the device.
    """

    is_capturable: bool
    pads_to_graphs: bool


@runtime_checkable
class ShapedByValues(Protocol):
    """An engine whose output shapes may depend on the values of shape tensors.

    Their addresses, in a binding, are in host memory, and are read while `enqueue` runs.
    """

    def shapes_under(self, shapes: Sequence[Shape], values: Sequence[bytes]) -> tuple[Shape, ...]:
        """Return the output shapes.

        Args:
            shapes: One for each input.
            values: The bytes of each shape tensor among the inputs, in their order.

        Raises:
            RequestError: No optimization profile takes these shapes or values.
            EngineError: The engine cannot tell.
        """

    def trial_values(self) -> Sequence[tuple[bytes, ...]]:
        """Return values of all shape tensors, for each of `trial_shapes`."""


@runtime_checkable
class MeasuredContext(Protocol):
    """A context that knows what it takes."""

    memory_bytes: int  # of the device, for this context alone
