"""Tells which shapes the outputs will have, on spare contexts that never run.

A slot's context must not be asked: setting other shapes on it makes its next enqueue plan anew. The
spare ones have no activation memory, and an answer is remembered, so that a request whose shapes
were seen before costs a look-up.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence

from headrace.engines.base import Shape, Signature
from headrace.engines.profiles import Profile, check_values, choose
from headrace.engines.trt_checked import CheckedContext
from headrace.engines.trt_tensors import pack_values, unpack_values
from headrace.errors import ConfigError, EngineError

MAX_REMEMBERED = 1024
"""Clients choose shapes, so what is remembered is bounded: about 1 kB each."""

Key = tuple[tuple[Shape, ...], tuple[bytes, ...]]  # shapes of all inputs, values of shape tensors


class OutputShapes:
    """The output shapes of one engine, by input shapes and by values of shape tensors.

    Args:
        signature: The engine's.
        contexts: A spare one for each profile in use.
    """

    def __init__(self, signature: Signature, contexts: Sequence[CheckedContext]) -> None:
        self._inputs = signature.inputs
        self._outputs = signature.outputs
        self._host_inputs = [spec for spec in signature.inputs if spec.is_shape_tensor]
        self._contexts = {each.profile.index: each for each in contexts}
        self._known: dict[Key, tuple[Shape, ...]] = {}
        self._lock = threading.Lock()  # of the contexts; loading another model must not delay this

    def is_known(self, shapes: tuple[Shape, ...]) -> bool:
        """Say whether these input shapes were asked for before, and so fit a profile."""
        return (shapes, ()) in self._known

    def ask(
        self, shapes: tuple[Shape, ...], values: tuple[bytes, ...] = ()
    ) -> tuple[Shape, ...] | None:
        """Return the output shapes; None when it takes the values of shape tensors to tell.

        Raises:
            RequestError: No profile takes the shapes or the values.
            EngineError: TensorRT cannot tell; has its reason.
        """
        key = (shapes, values)
        found = self._known.get(key)
        if found is not None:
            return found
        if len(values) != len(self._host_inputs):
            return None
        with self._lock:
            if not self._contexts:
                raise EngineError("the engine is closed")
            profile = choose([each.profile for each in self._contexts.values()], shapes)
            pairs = zip(self._host_inputs, values, strict=True)
            check_values(profile, [unpack_values(spec, raw) for spec, raw in pairs])
            found = self._infer(self._contexts[profile.index], shapes, values)
            if len(self._known) >= MAX_REMEMBERED:
                del self._known[next(iter(self._known))]
            self._known[key] = found
        return found

    def prove(self) -> None:
        """Ask at the optimum of every profile.

        Raises:
            ConfigError: Only a run could tell the shape of an output.
        """
        for each in self._contexts.values():
            profile = each.profile
            pairs = zip(self._host_inputs, profile.values, strict=True)
            values = tuple(pack_values(spec, bounds.optimum) for spec, bounds in pairs)
            try:
                self._infer(each, tuple(bounds.optimum for bounds in profile.inputs), values)
            except EngineError as error:
                raise ConfigError(str(error)) from error

    def keep_only(self, profiles: Sequence[Profile]) -> None:
        """Close the contexts of other profiles and forget what they said."""
        with self._lock:
            wanted = {profile.index for profile in profiles}
            for index in self._contexts.keys() - wanted:
                self._contexts.pop(index).close()
            self._known.clear()

    def close(self) -> None:
        """Free the spare contexts; a second call does nothing."""
        self.keep_only([])

    def _infer(
        self, on: CheckedContext, shapes: tuple[Shape, ...], values: tuple[bytes, ...]
    ) -> tuple[Shape, ...]:
        for spec, shape in zip(self._inputs, shapes, strict=True):
            if None in spec.shape:
                on.set_shape(spec.name, shape)
        buffers = [ctypes.create_string_buffer(raw, max(len(raw), 1)) for raw in values]
        for spec, buffer in zip(self._host_inputs, buffers, strict=True):
            on.set_address(spec.name, ctypes.addressof(buffer), is_host=True)
        found = tuple(on.output_shape(spec.name) for spec in self._outputs)
        for spec, shape in zip(self._outputs, found, strict=True):
            if -1 in shape:
                raise EngineError(
                    f"the shape {list(shape)} of output {spec.name!r} is known only after a run, "
                    "which is not served for plans: bound it in the model (TopK in place of "
                    "NonZero, say), or serve the model's ONNX file"
                )
        return found
