"""An execution context whose every answer is looked at: a refusal becomes an error with its reason.

TensorRT refuses with a False (or says nothing at all) and leaves old shapes, addresses and outputs
in place; its reason is in the context's error recorder. What is set already is not set again, since
a change of shape makes the next enqueue plan anew.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, Literal, NoReturn

from headrace.device.base import Device, DeviceBuffer, Stream
from headrace.engines.base import Shape
from headrace.engines.profiles import Profile
from headrace.engines.trt_load import LOAD_LOCK, LoadedPlan
from headrace.engines.trt_logging import ErrorTexts, make_recorder
from headrace.errors import DeviceError, EngineError

log = logging.getLogger(__name__)

Specialization = Literal["lazy", "eager", "none"]


class CheckedContext:
    """An `IExecutionContext` that stays on one optimization profile.

    Attributes:
        profile: The profile it is on.
        execute: Its `execute_async_v3(stream handle) -> bool`, bare, for the hot path.
        errors: What TensorRT reported to this context.
    """

    def __init__(self, plan: LoadedPlan, device: Device, profile: Profile, context: Any) -> None:
        self.profile = profile
        self.errors = ErrorTexts()
        self.execute = context.execute_async_v3
        self._context = context
        self._plan_errors = plan.errors
        self._device = device
        self._shapes: dict[str, Shape] = {}
        self._addresses: dict[str, int] = {}
        context.error_recorder = make_recorder(plan.backend.trt, self.errors)

    def select_profile(self, stream: Stream) -> None:
        """Put a new context on its profile; waits for the stream, since that may copy on it."""
        if self.profile.index == 0:
            return  # a new context is on it
        doing = f"the choice of optimization profile {self.profile.index}"
        try:  # the one call that raises
            is_set = self._context.set_optimization_profile_async(self.profile.index, stream.handle)
        except RuntimeError as error:
            raise self.refusal(doing) from error
        if not is_set:
            raise self.refusal(doing)
        stream.synchronize()

    def give_memory(self, memory: DeviceBuffer) -> None:
        """Hand over the activation memory, which must outlive the context."""
        self._context.set_device_memory(memory.ptr, memory.size_bytes)
        if not self.errors.is_empty:  # all that it has to say a refusal with
            raise self.refusal(f"{memory.size_bytes} bytes of activation memory")

    def set_shape(self, name: str, shape: Shape) -> None:
        """Set an input's shape."""
        if self._shapes.get(name) != shape:
            if not self._context.set_input_shape(name, shape):
                raise self.refusal(f"the shape {list(shape)} of input {name!r}")
            self._shapes[name] = shape

    def set_address(self, name: str, address: int, *, is_host: bool = False) -> None:
        """Set where a tensor lies; on the host always anew, since it is the values that count."""
        if is_host or self._addresses.get(name) != address:
            if not self._context.set_tensor_address(name, address):
                raise self.refusal(f"the address of tensor {name!r}")
            self._addresses[name] = address

    def output_shape(self, name: str) -> Shape:
        """Return an output's shape under the inputs that are set; -1 where only a run can tell."""
        try:
            return tuple(self._context.get_tensor_shape(name))
        except ValueError as error:  # the shape that TensorRT returns on failure has no length
            raise self.refusal(f"to tell the shape of output {name!r}") from error

    def refusal(self, what: str) -> EngineError:
        """Return the error for something TensorRT refused, and forget what was set.

        Raises:
            DeviceError: It is the device that is dead; then every later call fails as well.
        """
        reason = self.errors.take_first() or self._plan_errors.take_first() or "it gave no reason"
        self._shapes.clear()
        self._addresses.clear()
        error = EngineError(f"TensorRT refuses {what}: {reason}")
        try:
            self._device.check()
        except DeviceError as dead:
            raise dead from error
        return error

    def close(self) -> None:
        """Free the context; a second call does nothing."""
        self._context = _Closed()
        self.execute = _refuse_to_execute


def open_checked_contexts(
    plan: LoadedPlan,
    device: Device,
    profiles: Sequence[Profile],
    stream: Stream,
    specialization: Specialization,
) -> list[CheckedContext]:
    """Make a context for each profile, without activation memory; all of them or none.

    Raises:
        EngineError: TensorRT refuses one; has its reason.
    """
    with LOAD_LOCK, ExitStack() as undo:
        device.bind_thread()
        contexts: list[CheckedContext] = []
        for profile in profiles:
            context = plan.engine.create_execution_context(_allocation(plan, specialization))
            if context is None:
                device.check()
                reason = plan.errors.take_first() or "it gave no reason"
                raise EngineError(f"TensorRT refuses an execution context: {reason}")
            contexts.append(CheckedContext(plan, device, profile, context))
            undo.callback(contexts[-1].close)
            contexts[-1].select_profile(stream)
        undo.pop_all()
    return contexts


def _allocation(plan: LoadedPlan, specialization: Specialization) -> Any:
    """Return what tells `create_execution_context` that we bring the activation memory."""
    trt = plan.backend.trt
    strategy = trt.ExecutionContextAllocationStrategy.USER_MANAGED
    if not plan.backend.can.has_specialization:
        return strategy
    config = plan.engine.create_runtime_config()
    config.set_execution_context_allocation_strategy(strategy)
    kernels = trt.DynamicShapesKernelSpecializationStrategy
    config.dynamic_shapes_kernel_specialization_strategy = kernels.__members__[
        specialization.upper()
    ]
    return config


class _Closed:
    """Stands where a context was freed."""

    def __getattr__(self, _name: str) -> NoReturn:
        raise EngineError("the execution context is closed")


def _refuse_to_execute(_handle: int) -> NoReturn:
    raise EngineError("the execution context is closed")
