"""One slot's execution: contexts of one engine, tied to one stream and one piece of memory.

Rules
- All contexts here enqueue on the one stream, so no two of them run at once and they share their
  activation memory. There is one for each optimization profile in use, since to switch a context's
  profile copies and stalls.
- TensorRT keeps no buffer alive: the owner of the bound addresses does, until the slot's event.
- Shape tensors are bound to host addresses; their values are read during `enqueue`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from headrace.device.base import DeviceBuffer, Stream
from headrace.engines.base import Binding, Layout, Shape, Signature, TensorSpec
from headrace.engines.profiles import choose
from headrace.engines.trt_checked import CheckedContext
from headrace.engines.trt_tensors import size_bytes
from headrace.errors import EngineError, RequestError

log = logging.getLogger(__name__)

IO_ALIGNMENT_BYTES = 256
"""What TensorRT demands of the addresses of inputs and outputs on the device."""


@dataclass(frozen=True, slots=True, eq=False)
class _Call:
    """A binding as TensorRT wants it."""

    on: CheckedContext
    shapes: tuple[tuple[str, Shape], ...]  # of the inputs with dynamic dimensions
    addresses: tuple[tuple[str, int], ...]  # on the device
    host_addresses: tuple[tuple[str, int], ...]  # of shape tensors
    outputs: tuple[tuple[str, Shape], ...]


class TrtContext:
    """What one slot runs; made by `TrtEngine.open_context`.

    Args:
        signature: The engine's.
        output_shapes: `TrtEngine.output_shapes`, to hold layouts against.
        contexts: One for each profile in use, all of `stream`, with their memory.
        stream: The only stream that they will enqueue on.
        memory: Their activation memory; also stands in as the address of empty tensors.
        resources: What to close, contexts first.
    """

    def __init__(
        self,
        signature: Signature,
        output_shapes: Callable[[Sequence[Shape]], tuple[Shape, ...] | None],
        contexts: Sequence[CheckedContext],
        *,
        stream: Stream,
        memory: DeviceBuffer,
        resources: ExitStack,
    ) -> None:
        self._signature = signature
        self._output_shapes = output_shapes
        self._contexts = {each.profile.index: each for each in contexts}
        self._profiles = [each.profile for each in contexts]
        self._stream = stream  # keeps its handle alive
        self._handle = stream.handle
        self._memory = memory
        self.memory_bytes = memory.size_bytes
        self._resources = resources
        self._current: _Call | None = None  # whose shapes and addresses are set on its context

    def bind(
        self, layout: Layout, input_ptrs: Sequence[int], output_ptrs: Sequence[int]
    ) -> Binding:
        """Tie a layout to device addresses; those of shape tensors are host addresses.

        Raises:
            EngineError: The shapes, sizes or addresses are none that the engine can take.
        """
        try:
            profile = choose(self._profiles, layout.input_shapes)
        except RequestError as error:
            raise EngineError(str(error)) from error
        shapes = self._check_output_shapes(layout)
        inputs = _places(
            self._signature.inputs, layout.input_shapes, layout.input_sizes, input_ptrs
        )
        outputs = _places(self._signature.outputs, shapes, layout.output_sizes, output_ptrs)
        places = [(place.spec, self._address(place)) for place in (*inputs, *outputs)]
        call = _Call(
            on=self._contexts[profile.index],
            shapes=tuple((p.spec.name, p.shape) for p in inputs if None in p.spec.shape),
            addresses=tuple((spec.name, at) for spec, at in places if not spec.is_shape_tensor),
            host_addresses=tuple((spec.name, at) for spec, at in places if spec.is_shape_tensor),
            outputs=tuple((place.spec.name, place.shape) for place in outputs),
        )
        reads_host = bool(call.host_addresses)
        return Binding(layout, tuple(input_ptrs), tuple(output_ptrs), call, reads_host)

    def enqueue(self, binding: Binding) -> None:
        """Put the computation on the stream; does not wait for it.

        Raises:
            EngineError: TensorRT refuses it; has the reason. Nothing was enqueued.
            DeviceError: The device is dead.
        """
        call: _Call = binding.prepared
        on = call.on
        if self._current is not call or call.host_addresses:
            self._set_up(call)
        if not on.execute(self._handle):
            self._current = None
            raise on.refusal("to enqueue")
        if not on.errors.is_empty:
            log.warning("TensorRT enqueued, and reported: %s", on.errors.take_first())

    def close(self) -> None:
        """Free the contexts, then their memory; a second call does nothing."""
        self._current = None
        self._resources.close()

    def _set_up(self, call: _Call) -> None:
        """Set what differs from the last call on this context."""
        self._current = None
        on = call.on
        for name, shape in call.shapes:
            on.set_shape(name, shape)
        for name, address in call.addresses:
            on.set_address(name, address)
        for name, address in call.host_addresses:
            on.set_address(name, address, is_host=True)
        if call.host_addresses:  # only now, with the values, are the outputs' shapes known
            for name, shape in call.outputs:
                came = on.output_shape(name)
                if came != shape:
                    raise EngineError(
                        f"output {name!r} will have shape {list(came)} under these values of the "
                        f"shape tensors, but room was made for {list(shape)}"
                    )
        self._current = call

    def _check_output_shapes(self, layout: Layout) -> tuple[Shape, ...]:
        if layout.output_shapes is None:
            raise EngineError("outputs of unknown shape cannot be bound: TensorRT needs addresses")
        expected = self._output_shapes(layout.input_shapes)
        if expected is not None and expected != layout.output_shapes:
            raise EngineError(
                f"the layout has outputs of shapes {list(map(list, layout.output_shapes))}, but "
                f"they will be {list(map(list, expected))}"
            )
        return layout.output_shapes

    def _address(self, place: _Place) -> int:
        """Return the address to bind: never null, even for an empty tensor."""
        if not place.size_bytes and not place.ptr:
            return self._memory.ptr
        alignment = 1 if place.spec.is_shape_tensor else IO_ALIGNMENT_BYTES
        if not place.ptr or place.ptr % alignment:
            raise EngineError(
                f"tensor {place.spec.name!r} is at {place.ptr:#x}, expected a multiple of "
                f"{alignment} that is not null"
            )
        return place.ptr


@dataclass(frozen=True, slots=True)
class _Place:
    """One tensor of a layout."""

    spec: TensorSpec
    shape: Shape
    size_bytes: int
    ptr: int


def _places(
    specs: Sequence[TensorSpec], shapes: Sequence[Shape], sizes: Sequence[int], ptrs: Sequence[int]
) -> list[_Place]:
    """Pair specs with their part of a layout; refuse a size that is not the shape's."""
    places = [_Place(*each) for each in zip(specs, shapes, sizes, ptrs, strict=True)]
    for place in places:
        expected = size_bytes(place.spec.datatype, place.shape)
        if place.size_bytes != expected:
            raise EngineError(
                f"tensor {place.spec.name!r} of shape {list(place.shape)} has {place.size_bytes} "
                f"bytes in the layout, expected {expected}"
            )
    return places
