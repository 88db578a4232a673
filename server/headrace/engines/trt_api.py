"""The part of TensorRT's Python API that the adapter touches, as data.

A contract test holds every line against the compiled bindings of each supported release, and the
fake of the unit tests offers nothing else; so what the adapter calls exists, with these arguments.
Types are written as the bindings document them, without module names: `Any` for a raw pointer.
"""

from __future__ import annotations

from collections.abc import Mapping

OLDEST_VERSION = (10, 1)
"""First release with profiles that contexts share and with memory calls that take a size."""

USED_API: Mapping[str, tuple[str, ...]] = {
    "ILogger": (
        "__init__() -> None",
        "log(ILogger.Severity, str) -> None",  # ours, called by TensorRT
    ),
    "IErrorRecorder": (
        # All ours, called by TensorRT. It asks for the count by the name `get_num_errors`.
        "__init__() -> None",
        "num_errors() -> int",
        "get_error_code(int) -> ErrorCodeTRT",
        "get_error_desc(int) -> str",
        "has_overflowed() -> bool",
        "clear() -> None",
        "report_error(ErrorCodeTRT, str) -> bool",
    ),
    "Runtime": (
        "__init__(ILogger) -> None",
        "error_recorder = IErrorRecorder",
        "engine_host_code_allowed = bool",
        "deserialize_cuda_engine(Buffer) -> ICudaEngine",
    ),
    "ICudaEngine": (
        "num_io_tensors: int",
        "num_optimization_profiles: int",
        "num_aux_streams: int",
        "streamable_weights_size: int",
        "get_tensor_name(int) -> str",
        "get_tensor_mode(str) -> TensorIOMode",
        "get_tensor_dtype(str) -> DataType",
        "get_tensor_shape(str) -> Dims",
        "get_tensor_location(str) -> TensorLocation",
        "get_tensor_format_desc(str, int) -> str",
        "get_tensor_vectorized_dim(str, int) -> int",
        "get_tensor_profile_shape(str, int) -> list[Dims]",
        "get_tensor_profile_values(int, str) -> list[list[int]]",
        "get_device_memory_size_for_profile_v2(int) -> int",
        "create_execution_context(ExecutionContextAllocationStrategy) -> IExecutionContext",
    ),
    "IExecutionContext": (
        "error_recorder = IErrorRecorder",
        "set_optimization_profile_async(int, int) -> bool",
        "set_device_memory(int, int) -> None",
        "set_input_shape(str, tuple) -> bool",
        "set_tensor_address(str, int) -> bool",
        "get_tensor_shape(str) -> Dims",
        "execute_async_v3(int) -> bool",
    ),
}
"""Class → members: `name(arguments) -> result`, `name: type` is read, `name = type` is set."""

USED_ENUMS: Mapping[str, tuple[str, ...]] = {
    "ILogger.Severity": ("INTERNAL_ERROR", "ERROR", "WARNING", "INFO", "VERBOSE"),
    "TensorIOMode": ("INPUT", "OUTPUT"),
    "TensorLocation": ("DEVICE", "HOST"),
    "DataType": ("FLOAT", "HALF", "BF16", "INT8", "INT32", "INT64", "UINT8", "BOOL"),
    "ExecutionContextAllocationStrategy": ("USER_MANAGED",),
}

OPTIONAL_API: Mapping[str, tuple[str, ...]] = {
    "": ("init_libnvinfer_plugins(Any, str) -> bool",),
    "Runtime": ("get_engine_validity(Buffer) -> tuple",),
    "ICudaEngine": (
        "get_engine_stat(EngineStat) -> int",
        "get_aliased_input_tensor(str) -> str",
        "create_runtime_config() -> IRuntimeConfig",
        "create_execution_context(IRuntimeConfig) -> IExecutionContext",
    ),
    "IRuntimeConfig": (
        "set_execution_context_allocation_strategy(ExecutionContextAllocationStrategy) -> None",
        "dynamic_shapes_kernel_specialization_strategy = DynamicShapesKernelSpecializationStrategy",
    ),
}
"""Touched only where it is there, as `trt_modules.Capabilities` finds; "" is the module itself."""

OPTIONAL_ENUMS: Mapping[str, tuple[str, ...]] = {
    "EngineStat": ("TOTAL_WEIGHTS_SIZE",),
    "EngineValidity": ("VALID", "SUBOPTIMAL", "INVALID"),
    "EngineInvalidityDiagnostics": (),  # all of them are named in an error text
    "DynamicShapesKernelSpecializationStrategy": ("LAZY", "EAGER", "NONE"),
}
