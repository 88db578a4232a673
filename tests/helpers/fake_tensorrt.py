"""A small TensorRT on the virtual device: same classes and refusals, effects as late as real ones.

It offers what `headrace.engines.trt_api` lists and nothing more; a contract test compares its
signatures with that list, and the list with the compiled bindings. As in TensorRT, refusals are a
False with a text for the recorder, addresses are read at enqueue, values of host tensors too, and
device memory is touched only when the stream comes to the work.

`World` holds what a test may want to look at or to break. Plans are the header of a real one with a
JSON text behind it (`fake_plans.plan_bytes`).
"""

from __future__ import annotations

import ctypes
import enum
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.device.sim import SimDevice
from headrace.device.sim_stream import SimStream
from helpers.fake_ops import OPS, Array

Buffer = Any  # whatever has the buffer protocol
HEADER_BYTES = 64


class TensorIOMode(enum.Enum):
    NONE, INPUT, OUTPUT = range(3)


class TensorLocation(enum.Enum):
    DEVICE, HOST = range(2)


class DataType(enum.Enum):
    FLOAT, HALF, BF16, INT8, INT32, INT64, UINT8, BOOL, FP8 = range(9)


class ExecutionContextAllocationStrategy(enum.Enum):
    STATIC, ON_PROFILE_CHANGE, USER_MANAGED = range(3)


class EngineStat(enum.Enum):
    TOTAL_WEIGHTS_SIZE, STRIPPED_WEIGHTS_SIZE = range(2)


class EngineValidity(enum.Enum):
    VALID, SUBOPTIMAL, INVALID = range(3)


class EngineInvalidityDiagnostics(enum.IntFlag):
    VERSION_MISMATCH = 1
    UNSUPPORTED_CC = 2
    MALFORMED_ENGINE = 32


class DynamicShapesKernelSpecializationStrategy(enum.Enum):
    LAZY, EAGER, NONE = range(3)


class ErrorCodeTRT(enum.Enum):
    UNSPECIFIED_ERROR, INVALID_ARGUMENT = range(2)


NUMPY = {
    "FLOAT": np.float32,
    "HALF": np.float16,
    "INT8": np.int8,
    "INT32": np.int32,
    "INT64": np.int64,
    "UINT8": np.uint8,
    "BOOL": np.bool_,
}


class Dims:
    """A shape; one that failed has the length -1, which `tuple()` refuses."""

    def __init__(self, sizes: Sequence[int] | None) -> None:
        self._sizes = sizes

    def __len__(self) -> int:
        return -1 if self._sizes is None else len(self._sizes)

    def __getitem__(self, index: int) -> int:
        return (self._sizes or ())[index]


@dataclass
class World:
    """The outside of the fake: its device, what happened, and what shall go wrong."""

    device: SimDevice
    journal: list[str] = field(default_factory=list)  # frees and enqueues, in order
    refusals: dict[str, str] = field(default_factory=dict)  # method → text; the next call only
    always_refuse: dict[str, str] = field(default_factory=dict)  # method → text; every call
    reports: dict[str, str] = field(default_factory=dict)  # method → text beside the next success
    max_contexts: int = 1000  # of one engine
    is_silent: bool = False  # refuse without a reason
    validity: tuple[EngineValidity, int] = (EngineValidity.VALID, 0)
    loads: list[dict[str, Any]] = field(default_factory=list)  # what each load was asked with
    configs: list[IRuntimeConfig] = field(default_factory=list)
    activations: list[int] = field(default_factory=list)  # addresses given to contexts
    calls: list[str] = field(default_factory=list)  # of setters, in order
    on_load: Callable[[], None] = lambda: None  # called in the middle of a load

    def refuses(self, method: str, report: Callable[[str], None]) -> bool:
        """Say whether this call is to be refused, and report why."""
        if method in self.reports:
            report(self.reports.pop(method))
        text = self.refusals.pop(method, None) or self.always_refuse.get(method)
        if text is not None and not self.is_silent:
            report(text)
        return text is not None

    def stream(self, handle: int) -> SimStream:
        """Return the open stream of a handle."""
        (found,) = (each for each in self.device._streams if each.handle == handle)
        return found

    # What happens on the device; a world on a GPU does these in its own way.

    def check_memory(self, address: int, size_bytes: int) -> None:
        """Hold that this is open memory of the device."""
        self.device.memory.bytes_at(address, size_bytes, "device")

    def touch(self, handle: int) -> None:
        """Put something on a stream, as the choice of a profile does."""
        self.stream(handle).launch(lambda: None)

    def enqueue(
        self, context: IExecutionContext, handle: int, outputs: dict[str, tuple[int, ...]]
    ) -> bool:
        """Put the run of a context whose shapes and addresses are set on a stream.

        Addresses are taken now, memory is touched when the work runs.
        """
        engine, memory = context._engine, context._memory
        inputs = [context._input(name) for name in engine._names(TensorIOMode.INPUT)]
        places = [context._place(name, outputs[name]) for name in outputs]
        op = OPS[engine._plan["op"]].run

        def run() -> None:
            self.device.memory.bytes_at(*memory, "device")[:] = 0xEE
            for place, value in zip(places, op([read() for read in inputs]), strict=True):
                place()[...] = value

        self.stream(handle).launch(run)
        return True


class ILogger:
    class Severity(enum.Enum):
        INTERNAL_ERROR, ERROR, WARNING, INFO, VERBOSE = range(5)

    def __init__(self) -> None: ...

    def log(self, severity: ILogger.Severity, msg: str) -> None: ...


class IErrorRecorder:
    def __init__(self) -> None: ...

    def num_errors(self) -> int:
        raise NotImplementedError

    def get_error_code(self, arg0: int) -> ErrorCodeTRT:
        raise NotImplementedError

    def get_error_desc(self, arg0: int) -> str:
        raise NotImplementedError

    def has_overflowed(self) -> bool:
        raise NotImplementedError

    def clear(self) -> None: ...

    def report_error(self, arg0: ErrorCodeTRT, arg1: str) -> bool:
        raise NotImplementedError


class _Reporter:
    """Something with an error recorder."""

    _recorder: IErrorRecorder | None = None

    def _set_recorder(self, recorder: IErrorRecorder) -> None:
        self._recorder = recorder

    def _report(self, text: str) -> None:
        if self._recorder:
            self._recorder.report_error(ErrorCodeTRT.INVALID_ARGUMENT, text)


class Runtime(_Reporter):
    _world: World  # set by `make_module`

    def __init__(self, logger: ILogger) -> None:
        self._logger = logger
        self._allowed = False

    def __del__(self) -> None:
        self._world.journal.append("runtime freed")

    def _set_allowed(self, value: bool) -> None:
        self._allowed = value

    error_recorder = property(None, _Reporter._set_recorder)
    engine_host_code_allowed = property(None, _set_allowed)

    def get_engine_validity(self, buffer: Buffer) -> tuple:  # type: ignore[type-arg]
        if self._world.refuses("get_engine_validity", self._log_error):
            return EngineValidity.INVALID, int(self._world.validity[1])
        return self._world.validity

    def deserialize_cuda_engine(self, serialized_engine: Buffer) -> ICudaEngine | None:
        world = self._world
        content = bytes(serialized_engine)
        world.loads.append({"size_bytes": len(content), "allowed": self._allowed})
        world.on_load()
        self._logger.log(ILogger.Severity.INFO, "Loaded an engine")
        if world.refuses("deserialize_cuda_engine", self._report):
            if not world.is_silent:
                self._report("catchCudaError: an echo of the failure")
            return None
        described = json.loads(content[HEADER_BYTES:].rstrip(b"\0"))
        if described.get("host_code") and not self._allowed:
            self._report("IRuntime::getEngineHostCodeAllowed() is false.")
            return None
        return ICudaEngine(self, described)

    def _log_error(self, text: str) -> None:
        self._logger.log(ILogger.Severity.INTERNAL_ERROR, text)


class IRuntimeConfig:
    def set_execution_context_allocation_strategy(
        self, strategy: ExecutionContextAllocationStrategy
    ) -> None:
        self._strategy = strategy

    def _specialize(self, value: DynamicShapesKernelSpecializationStrategy) -> None:
        self._specialization = value

    dynamic_shapes_kernel_specialization_strategy = property(None, _specialize)


class ICudaEngine:
    def __init__(self, runtime: Runtime, plan: dict[str, Any]) -> None:
        self._runtime = runtime  # keep_alive, as the binding has it
        self._plan = plan
        self._world = runtime._world
        self._tensors = {each["name"]: each for each in plan["tensors"]}
        self._num_contexts = 0

    def __del__(self) -> None:
        self._world.journal.append("engine freed")

    @property
    def num_io_tensors(self) -> int:
        return len(self._tensors)

    @property
    def num_optimization_profiles(self) -> int:
        return max(len(self._plan["profiles"]), 1)

    @property
    def num_aux_streams(self) -> int:
        return 0

    @property
    def streamable_weights_size(self) -> int:
        return int(self._plan.get("streamable", 0))

    def get_tensor_name(self, index: int) -> str:
        return str(list(self._tensors)[index])

    def get_tensor_mode(self, name: str) -> TensorIOMode:
        return TensorIOMode[str(self._tensors[name]["mode"])]

    def get_tensor_dtype(self, name: str) -> DataType:
        return DataType[self._tensors[name]["dtype"]]

    def get_tensor_shape(self, name: str) -> Dims:
        return Dims(self._tensors[name]["shape"])

    def get_tensor_location(self, name: str) -> TensorLocation:
        return TensorLocation[self._tensors[name].get("location", "DEVICE")]

    def get_tensor_format_desc(self, name: str, profile_index: int) -> str:
        default = f"Row major linear {self._tensors[name]['dtype']} format (kLINEAR)"
        return str(self._tensors[name].get("format", default))

    def get_tensor_vectorized_dim(self, name: str, profile_index: int) -> int:
        return int(self._tensors[name].get("vectorized_dim", -1))

    def get_tensor_profile_shape(self, name: str, profile_index: int) -> list[Dims]:
        return [Dims(shape) for shape in self._bounds(name, profile_index)]

    def get_tensor_profile_values(self, name: int, profile_index: str) -> list[list[int]]:
        index, tensor = name, profile_index  # the binding has these names the wrong way round
        return list(self._plan["profiles"][index].get(f"{tensor}:values", []))

    def get_device_memory_size_for_profile_v2(self, profile_index: int) -> int:
        return int(self._plan["memory"][profile_index])

    def get_engine_stat(self, stat: EngineStat) -> int:
        return int(self._plan.get("weights", 0))

    def get_aliased_input_tensor(self, name: str) -> str | None:
        alias: str | None = self._tensors[name].get("alias")
        return alias

    def create_runtime_config(self) -> IRuntimeConfig:
        self._world.configs.append(IRuntimeConfig())
        return self._world.configs[-1]

    def create_execution_context(
        self, strategy: ExecutionContextAllocationStrategy | IRuntimeConfig
    ) -> IExecutionContext | None:
        self._num_contexts += 1
        if self._world.refuses("create_execution_context", self._runtime._report):
            return None
        if self._num_contexts > self._world.max_contexts:
            self._runtime._report("Profile 0 has been chosen by another IExecutionContext.")
            return None
        chosen = strategy._strategy if isinstance(strategy, IRuntimeConfig) else strategy
        assert chosen is ExecutionContextAllocationStrategy.USER_MANAGED, chosen
        return IExecutionContext(self)

    def _bounds(self, name: str, profile: int) -> list[list[int]]:
        profiles = self._plan["profiles"]
        shape = self._tensors[name]["shape"]
        return profiles[profile][name] if profiles else [shape, shape, shape]

    def _names(self, mode: TensorIOMode) -> Iterator[str]:
        return (name for name in self._tensors if self.get_tensor_mode(name) is mode)


class IExecutionContext(_Reporter):
    def __init__(self, engine: ICudaEngine) -> None:
        self._engine = engine
        self._world = engine._world
        self._profile = 0
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._addresses: dict[str, int] = {}
        self._memory = (0, 0)

    def __del__(self) -> None:
        self._world.journal.append("context freed")
        if self._memory[0]:  # what it was given must outlive it
            self._world.check_memory(*self._memory)

    error_recorder = property(None, _Reporter._set_recorder)

    def set_optimization_profile_async(self, profile_index: int, stream_handle: int) -> bool:
        if self._world.refuses("set_optimization_profile_async", self._report):
            raise RuntimeError("the profile cannot be set")
        self._world.touch(stream_handle)
        self._profile = profile_index
        self._shapes.clear()
        return True

    def set_device_memory(self, memory: int, size: int) -> None:
        needed = self._engine.get_device_memory_size_for_profile_v2(self._profile)
        if self._world.refuses("set_device_memory", self._report):
            return
        if memory % 512 or size < needed:
            self._report(f"setDeviceMemoryV2: {size} bytes at {memory:#x}, required {needed}")
            return
        self._world.check_memory(memory, size)
        self._world.activations.append(memory)
        self._memory = (memory, size)

    def set_input_shape(self, name: str, shape: tuple) -> bool:  # type: ignore[type-arg]
        self._world.calls.append(f"shape {name}")
        low, _, high = self._engine._bounds(name, self._profile)
        fits = len(shape) == len(low) and all(map(_within, low, shape, high))
        if self._world.refuses("set_input_shape", self._report) or not fits:
            self._report(f"Static dimension mismatch while setting {name} to {shape}")
            self._shapes.pop(name, None)  # what it was before cannot be relied on
            return False
        self._shapes[name] = tuple(shape)
        return True

    def set_tensor_address(self, name: str, memory: int) -> bool:
        self._world.calls.append(f"address {name}")
        if self._world.refuses("set_tensor_address", self._report):
            self._addresses.pop(name, None)
            return False
        if name not in self._engine._tensors:
            self._report(f"Given invalid tensor name: {name}")
            return False
        self._addresses[name] = memory
        return True

    def get_tensor_shape(self, name: str) -> Dims:
        if self._world.refuses("get_tensor_shape", self._report):
            return Dims(None)
        return Dims(self._output_shapes()[name])

    def execute_async_v3(self, stream_handle: int) -> bool:
        world = self._world
        if world.refuses("execute_async_v3", self._report):
            return False
        for name in self._engine._tensors:
            if not self._addresses.get(name):
                self._report(f"Address is not set for tensor {name}.")
                return False
        if not self._memory[0]:
            self._report("setDeviceMemoryV2 should be called before enqueue/execute.")
            return False
        outputs = self._output_shapes()
        if any(-1 in shape for shape in outputs.values()):
            self._report(f"an output has the shape {outputs}")
            return False
        world.journal.append("enqueued")
        return world.enqueue(self, stream_handle, outputs)

    def _shape_of(self, name: str) -> tuple[int, ...]:
        return self._shapes.get(name, tuple(self._engine._tensors[name]["shape"]))

    def _output_shapes(self) -> dict[str, tuple[int, ...]]:
        inputs = list(self._engine._names(TensorIOMode.INPUT))
        hosts = [name for name in inputs if self._is_host(name)]
        values = [self._host_values(name) for name in hosts]
        shapes = [self._shape_of(name) for name in inputs]
        found = OPS[self._engine._plan["op"]].shapes(shapes, values)
        return dict(zip(self._engine._names(TensorIOMode.OUTPUT), found, strict=True))

    def _is_host(self, name: str) -> bool:
        return self._engine.get_tensor_location(name) is TensorLocation.HOST

    def _host_values(self, name: str) -> Array | None:
        """Read a host tensor; None before its address is set."""
        if name not in self._addresses:
            return None
        dtype = np.dtype(NUMPY[self._engine._tensors[name]["dtype"]])
        shape = self._shape_of(name)
        raw = (ctypes.c_ubyte * (int(np.prod(shape)) * dtype.itemsize)).from_address(
            self._addresses[name]
        )
        return np.frombuffer(bytes(raw), dtype).reshape(shape)

    def _input(self, name: str) -> Callable[[], Array]:
        if self._is_host(name):
            values = self._host_values(name)
            assert values is not None
            return lambda: values
        return self._place(name, self._shape_of(name))

    def _place(self, name: str, shape: tuple[int, ...]) -> Callable[[], Array]:
        """Return what gives the tensor's device memory as an array, when it is called."""
        dtype = np.dtype(NUMPY[self._engine._tensors[name]["dtype"]])
        address = self._addresses[name]
        size_bytes = int(np.prod(shape)) * dtype.itemsize
        memory = self._world.device.memory

        def view() -> NDArray[Any]:
            if not size_bytes:
                return np.zeros(shape, dtype)
            return memory.bytes_at(address, size_bytes, "device").view(dtype).reshape(shape)

        return view


def _within(low: int, size: int, high: int) -> bool:
    return low <= size <= high


def init_libnvinfer_plugins(logger: Any, namespace: str) -> bool:
    return True


def make_module(
    world: World,
    name: str = "tensorrt",
    version: str = "11.4.0.106",
    *,
    without: Sequence[str] = (),
) -> ModuleType:
    """Make a module of the fake.

    Args:
        world: What its runtimes live in.
        name: Its import name; an RTX one has validity and kernel specialization, others have not.
        version: Its `__version__`.
        without: Names to leave out: of the module ("init_libnvinfer_plugins") or of a class
            ("ICudaEngine.get_engine_stat").
    """
    rtx_only = [
        "Runtime.get_engine_validity",
        "IRuntimeConfig.dynamic_shapes_kernel_specialization_strategy",
    ]
    left_out = [*without, *([] if "rtx" in name else rtx_only)]
    module = ModuleType(name)
    for public, thing in PUBLIC.items():
        if public not in left_out:
            setattr(module, public, _copy(public, thing, left_out))
    module.Runtime._world = world
    module.__dict__["__version__"] = version
    return module


def _copy(name: str, thing: Any, left_out: Sequence[str]) -> Any:
    """Return a class of its own for a module, less what that module lacks."""
    dropped = [each.partition(".")[2] for each in left_out if each.startswith(f"{name}.")]
    if not isinstance(thing, type) or not (dropped or name == "Runtime"):
        return thing
    kept = {key: value for key, value in vars(thing).items() if key not in dropped}
    return type(name, thing.__bases__, kept)


PUBLIC: dict[str, Any] = {
    "ILogger": ILogger,
    "IErrorRecorder": IErrorRecorder,
    "Runtime": Runtime,
    "ICudaEngine": ICudaEngine,
    "IExecutionContext": IExecutionContext,
    "IRuntimeConfig": IRuntimeConfig,
    "TensorIOMode": TensorIOMode,
    "TensorLocation": TensorLocation,
    "DataType": DataType,
    "ExecutionContextAllocationStrategy": ExecutionContextAllocationStrategy,
    "EngineStat": EngineStat,
    "EngineValidity": EngineValidity,
    "EngineInvalidityDiagnostics": EngineInvalidityDiagnostics,
    "DynamicShapesKernelSpecializationStrategy": DynamicShapesKernelSpecializationStrategy,
    "init_libnvinfer_plugins": init_libnvinfer_plugins,
}
