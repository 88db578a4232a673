"""What the ladder measures: one engine with one input, and the slots that each rung asks for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace.device.base import Device, Stream
from headrace.device.host import HostDevice
from headrace.engines.base import CapturableEngine, Engine, Layout, Shape, TensorSpec
from headrace.engines.kinds import lay_out
from headrace.engines.layout import num_elements
from headrace.errors import ConfigError
from headrace.ladder.rungs import Rung
from headrace.model import EMPTY_ELEMENT_BYTES
from headrace.slots.batch import Batch
from headrace.slots.graphs import GraphTally
from headrace.slots.lane import Lane
from headrace.slots.slot import Slot
from headrace_proto.datatypes import DATATYPES

SEED = 1  # the same input every time


@dataclass(frozen=True, slots=True)
class Payload:
    """The input of every request of a rung; `tensors` as a message would hold them."""

    layout: Layout
    tensors: tuple[bytes, ...]
    rows: int


class TimedSlot(Slot):
    """A slot that adds up what its enqueueing costs the host."""

    enqueue_s = 0.0  # without the computation, where that runs inline
    num_enqueued = 0

    def enqueue(self, lane: Lane, batch: Batch[Any]) -> None:
        """Enqueue, and count."""
        before = self._clock()
        super().enqueue(lane, batch)
        self.enqueue_s += self._clock() - before
        if self.is_inline:
            self.enqueue_s -= lane.finished_at - lane.started_at
        self.num_enqueued += 1


class Subject:
    """An engine under measurement.

    Args:
        device: Where it runs.
        engine: Closed by `close`.
        shapes: Whole shapes of inputs by name; the others are as small as the engine takes them.
        rows: The batch dimension where `shapes` says nothing and the model has one.
    """

    def __init__(
        self,
        device: Device,
        engine: Engine,
        *,
        shapes: Mapping[str, Shape] | None = None,
        rows: int = 1,
    ) -> None:
        """Choose the input.

        Raises:
            ConfigError: A shape does not fit the model.
        """
        self.device = device
        self.engine = engine
        specs = engine.signature.inputs
        self._shapes = _full_shapes(specs, shapes or {}, engine.trial_shapes()[0], rows)
        self.rows, self.is_batching = _rows(specs, self._shapes, bool(shapes))

    @property
    def has_graphs(self) -> bool:
        """Whether graphs can be tried here at all."""
        if isinstance(self.engine, CapturableEngine) and not self.engine.is_capturable:
            return False
        return self.device.kind == "cudart"

    @property
    def max_rows(self) -> int | None:
        """The most rows a request may have; None for any number."""
        if not self.is_batching:
            return self.rows
        return max(self.engine.profile_rows, default=None)

    @property
    def shapes(self) -> dict[str, Shape]:
        """The inputs' shapes by name, as measured below the batch rungs."""
        names = (spec.name for spec in self.engine.signature.inputs)
        return dict(zip(names, self._shapes, strict=True))

    def payload(self, rows: int) -> Payload:
        """Make the input for so many rows: random numbers, zeros where they may be indices.

        Raises:
            RequestError: The engine takes no such shapes.
        """
        shapes = [(rows, *shape[1:]) if self.is_batching else shape for shape in self._shapes]
        random = np.random.default_rng(SEED)
        specs = self.engine.signature.inputs
        tensors = tuple(
            _numbers(spec, shape, random) for spec, shape in zip(specs, shapes, strict=True)
        )
        self.engine.check_inputs(shapes)
        layout = lay_out(self.engine, shapes, [len(tensor) for tensor in tensors])
        return Payload(layout, tensors, rows)

    def open_slots(self, rung: Rung, clock: Callable[[], float]) -> list[TimedSlot]:
        """Open the slots of a rung.

        Raises:
            HeadraceError: One cannot be had; those before it are closed again.
        """
        slots: list[TimedSlot] = []
        with ExitStack() as undo:
            for index in range(rung.num_slots):
                slots.append(self._open_slot(index, rung, clock))
                undo.callback(slots[-1].close)
            undo.pop_all()
        return slots

    def close(self) -> None:
        """Close the engine; its slots must be closed. A second call does nothing."""
        self.engine.close()

    def _open_slot(self, index: int, rung: Rung, clock: Callable[[], float]) -> TimedSlot:
        is_inline = rung.is_synchronous and isinstance(self.device, HostDevice)
        with ExitStack() as undo:
            stream = self._open_stream(is_inline=is_inline)
            undo.callback(stream.close)
            context = self.engine.open_context(stream)
            undo.callback(context.close)
            slot = TimedSlot(
                index,
                self.device,
                stream,
                context,
                clock=clock,
                num_lanes=rung.num_lanes,
                has_marks=self.device.kind == "cudart",
                is_inline=is_inline,
            )
            undo.pop_all()
        if rung.has_graphs:
            slot.use_graphs(GraphTally())
        return slot

    def _open_stream(self, *, is_inline: bool) -> Stream:
        if is_inline:
            assert isinstance(self.device, HostDevice)
            return self.device.open_inline_stream()
        return self.device.open_stream()


def parse_shape(text: str) -> tuple[str, Shape]:
    """Read `input:1x3x224x224`; a scalar is `input:`.

    Raises:
        ConfigError: It is not written so.
    """
    name, colon, dims = text.rpartition(":")  # a name may hold colons, too
    try:
        shape = tuple(int(dim) for dim in dims.split("x")) if dims else ()
    except ValueError:
        shape = (-1,)
    if not name or not colon or any(dim < 0 for dim in shape):
        raise ConfigError(f"got {text!r}, expected INPUT:1x3x224x224", field="--shape")
    return name, shape


def _full_shapes(
    specs: Sequence[TensorSpec], given: Mapping[str, Shape], smallest: Sequence[Shape], rows: int
) -> list[Shape]:
    names = [spec.name for spec in specs]
    for name in given:
        if name not in names:
            raise ConfigError(
                f"there is no input {name!r}; the model has {', '.join(map(repr, names))}",
                field="--shape",
            )
    has_rows = not given and all(spec.shape and spec.shape[0] is None for spec in specs)
    shapes: list[Shape] = []
    for spec, small in zip(specs, smallest, strict=True):
        shape = given.get(spec.name, (rows, *small[1:]) if has_rows else small)
        _check_shape(spec, shape)
        shapes.append(shape)
    return shapes


def _check_shape(spec: TensorSpec, shape: Shape) -> None:
    fits = len(shape) == len(spec.shape) and all(
        own in (None, dim) for own, dim in zip(spec.shape, shape, strict=True)
    )
    if not fits:
        expected = "x".join("?" if dim is None else str(dim) for dim in spec.shape)
        raise ConfigError(
            f"{spec.name!r} has the shape {expected or 'of a scalar'}, got "
            f"{'x'.join(map(str, shape)) or 'a scalar'}",
            field="--shape",
        )


def _rows(specs: Sequence[TensorSpec], shapes: Sequence[Shape], is_given: bool) -> tuple[int, bool]:
    """Return the rows of a request, and whether other numbers of rows can be tried.

    The first dimension counts as the batch when all inputs share it and it is dynamic or was given.
    """
    firsts = {shape[0] if shape else None for shape in shapes}
    first = next(iter(firsts)) if len(firsts) == 1 else None
    if first is None or not specs:
        return 1, False
    is_dynamic = all(spec.shape[0] is None for spec in specs)
    return (first, is_dynamic) if is_dynamic or is_given else (1, False)


def _numbers(spec: TensorSpec, shape: Shape, random: np.random.Generator) -> bytes:
    """Return a tensor's bytes, C order."""
    datatype = DATATYPES[spec.datatype]
    if datatype.itemsize_bytes == 0:  # BYTES: empty elements
        return bytes(num_elements(shape) * EMPTY_ELEMENT_BYTES)
    if spec.datatype in ("FP16", "FP32", "FP64"):
        return random.standard_normal(shape).astype(datatype.numpy).tobytes()
    if spec.datatype == "UINT8":
        return random.integers(0, 256, shape, dtype=np.uint8).tobytes()
    return bytes(num_elements(shape) * datatype.itemsize_bytes)
