"""The part of TensorRT's Python API that builds plans, as data; see `trt_api` for the notation."""

from __future__ import annotations

from collections.abc import Mapping

BUILDER_API: Mapping[str, tuple[str, ...]] = {
    "Builder": (
        "__init__(ILogger) -> None",
        "create_network(int) -> INetworkDefinition",
        "create_builder_config() -> IBuilderConfig",
        "create_optimization_profile() -> IOptimizationProfile",
        "build_serialized_network(INetworkDefinition, IBuilderConfig) -> IHostMemory",
    ),
    "OnnxParser": (
        "__init__(INetworkDefinition, ILogger) -> None",
        "parse_from_file(str) -> bool",
        "num_errors: int",
        "get_error(int) -> IParserError",
    ),
    "ParserError": (  # the class of what `get_error` returns
        "desc() -> str",
        "node() -> int",
        "node_name() -> str",
        "node_operator() -> str",
    ),
    "INetworkDefinition": (
        "num_inputs: int",
        "num_outputs: int",
        "num_layers: int",
        "get_input(int) -> ITensor",
        "get_output(int) -> ITensor",
        "get_layer(int) -> ILayer",
        "get_flag(NetworkDefinitionCreationFlag) -> bool",
    ),
    "ITensor": (
        "name: str",
        "shape: Dims",
        "dtype: DataType",
        "is_shape_tensor: bool",
    ),
    "ILayer": (
        "type: LayerType",
        "num_outputs: int",
        "get_output(int) -> ITensor",
    ),
    "IOptimizationProfile": (
        "set_shape(str, Dims, Dims, Dims) -> None",
        "set_shape_input(str, list[int], list[int], list[int]) -> None",
    ),
    "IBuilderConfig": (
        "set_flag(BuilderFlag) -> None",
        "clear_flag(BuilderFlag) -> None",
        "get_flag(BuilderFlag) -> bool",
        "set_memory_pool_limit(MemoryPoolType, int) -> None",
        "max_aux_streams = int",
        "builder_optimization_level = int",
        "hardware_compatibility_level = HardwareCompatibilityLevel",
        "progress_monitor = IProgressMonitor",
        "add_optimization_profile(IOptimizationProfile) -> int",
        "create_timing_cache(Buffer) -> ITimingCache",
        "set_timing_cache(ITimingCache, bool) -> bool",
        "get_timing_cache() -> ITimingCache",
    ),
    "ITimingCache": ("serialize() -> IHostMemory",),
    "IProgressMonitor": (  # ours, called by TensorRT
        "__init__() -> None",
        "phase_start(str, str, int) -> None",
        "step_complete(str, int) -> bool",
        "phase_finish(str) -> None",
    ),
}
"""In every supported release, and in RTX."""

BUILDER_ENUMS: Mapping[str, tuple[str, ...]] = {
    "BuilderFlag": ("TF32", "VERSION_COMPATIBLE", "EXCLUDE_LEAN_RUNTIME"),
    "NetworkDefinitionCreationFlag": ("STRONGLY_TYPED",),  # its number moved: never by number
    "MemoryPoolType": ("WORKSPACE",),
    "HardwareCompatibilityLevel": ("NONE", "AMPERE_PLUS"),
    "LayerType": ("CONSTANT",),
}

OPTIONAL_BUILDER_API: Mapping[str, tuple[str, ...]] = {
    "IBuilderConfig": (
        "num_compute_capabilities = int",
        "set_compute_capability(ComputeCapability, int) -> bool",
    ),
}
"""Touched only where it is there: RTX."""

OPTIONAL_BUILDER_MEMBERS: Mapping[str, tuple[str, ...]] = {
    "BuilderFlag": ("FP16", "BF16", "INT8", "FP8"),  # until 10.16: the graph says it since 11.0
    "HardwareCompatibilityLevel": ("SAME_COMPUTE_CAPABILITY",),  # not in 10.1
    "ComputeCapability": ("SM75", "SM80", "SM86", "SM89", "SM120", "SM121"),  # RTX
}
"""Members that only some releases have; each is asked for by name before it is used."""
