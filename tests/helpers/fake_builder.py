"""A small builder of TensorRT's, to see what a build asks of the standard one, which needs a GPU.

It offers what `headrace.engines.trt_build_api` lists and nothing more; a contract test compares. It
reads ONNX files with ONNX's own library, and what it "builds" is a plan of the fake runtime.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import onnx

from helpers.fake_plans import plan_bytes
from helpers.fake_tensorrt import Buffer, DataType, Dims, ILogger, World, make_module

ONNX_TYPES = {1: DataType.FLOAT, 10: DataType.HALF, 7: DataType.INT64}


class WeakCreationFlag(enum.IntEnum):  # as until 10.16
    EXPLICIT_BATCH, STRONGLY_TYPED = range(2)


class StrongCreationFlag(enum.IntEnum):  # as from 11.0 on: the number moved
    STRONGLY_TYPED = 0


class MemoryPoolType(enum.Enum):
    WORKSPACE, TACTIC_DRAM = range(2)


class HardwareCompatibilityLevel(enum.Enum):
    NONE, AMPERE_PLUS = range(2)


class LayerType(enum.Enum):
    CONSTANT, ACTIVATION = range(2)


class WeakBuilderFlag(enum.Enum):  # as until 10.16
    FP16, BF16, INT8, FP8, TF32, VERSION_COMPATIBLE, EXCLUDE_LEAN_RUNTIME = range(7)


class StrongBuilderFlag(enum.Enum):  # as from 11.0 on
    TF32, VERSION_COMPATIBLE, EXCLUDE_LEAN_RUNTIME = range(3)


@dataclass
class Workshop:
    """What a test may want to look at, or to break."""

    plan: dict[str, Any]  # what is built, whatever the model
    configs: list[IBuilderConfig] = field(default_factory=list)
    refusal: str | None = None  # why the next build fails
    cache: bytes = b"measured"  # what a build leaves in its timing cache
    takes_cache: bool = True


IHostMemory = bytearray
"""All that is used of it is that it is a buffer."""


class ITimingCache:
    def __init__(self, content: bytes) -> None:
        self._content = content

    def serialize(self) -> IHostMemory:
        return IHostMemory(self._content)


class IProgressMonitor:
    def __init__(self) -> None: ...

    def phase_start(self, phase_name: str, parent_phase: str, num_steps: int) -> None: ...

    def step_complete(self, phase_name: str, step: int) -> bool:
        return True

    def phase_finish(self, phase_name: str) -> None: ...


class ITensor:
    def __init__(self, value: onnx.ValueInfoProto) -> None:
        sizes = value.type.tensor_type.shape.dim
        self._value = value
        self._shape = [dim.dim_value if dim.HasField("dim_value") else -1 for dim in sizes]

    @property
    def name(self) -> str:
        return str(self._value.name)

    @property
    def shape(self) -> Dims:
        return Dims(self._shape)

    @property
    def dtype(self) -> DataType:
        return ONNX_TYPES[self._value.type.tensor_type.elem_type]

    @property
    def is_shape_tensor(self) -> bool:
        return self.dtype is DataType.INT64


class ILayer:
    def __init__(self, output: ITensor) -> None:
        self._output = output

    @property
    def type(self) -> LayerType:
        return LayerType.ACTIVATION

    @property
    def num_outputs(self) -> int:
        return 1

    def get_output(self, index: int) -> ITensor:
        return self._output


class INetworkDefinition:
    def __init__(self, flags: int) -> None:
        self._flags = flags
        self._inputs: list[ITensor] = []
        self._outputs: list[ITensor] = []

    @property
    def num_inputs(self) -> int:
        return len(self._inputs)

    @property
    def num_outputs(self) -> int:
        return len(self._outputs)

    @property
    def num_layers(self) -> int:
        return len(self._outputs)

    def get_input(self, index: int) -> ITensor:
        return self._inputs[index]

    def get_output(self, index: int) -> ITensor:
        return self._outputs[index]

    def get_layer(self, index: int) -> ILayer:
        return ILayer(self._outputs[index])

    def get_flag(self, flag: NetworkDefinitionCreationFlag) -> bool:
        return bool(self._flags >> flag & 1)


class ParserError:
    def desc(self) -> str:
        return "cannot be parsed"

    def node(self) -> int:
        return -1

    def node_name(self) -> str:
        return ""

    def node_operator(self) -> str:
        return ""


IParserError = ParserError


class OnnxParser:
    def __init__(self, network: INetworkDefinition, logger: ILogger) -> None:
        self._network = network

    def parse_from_file(self, model: str) -> bool:
        graph = onnx.load(model).graph
        self._network._inputs += map(ITensor, graph.input)
        self._network._outputs += map(ITensor, graph.output)
        return True

    @property
    def num_errors(self) -> int:
        return 0

    def get_error(self, index: int) -> IParserError:
        return ParserError()


class IOptimizationProfile:
    def __init__(self) -> None:
        self._bounds: dict[str, Any] = {}

    def set_shape(self, name: str, low: Dims, best: Dims, high: Dims) -> None:
        self._bounds[name] = (low, best, high)

    def set_shape_input(self, name: str, low: list[int], best: list[int], high: list[int]) -> None:
        self._bounds[f"{name}:values"] = (low, best, high)


class IBuilderConfig:
    def __init__(self, workshop: Workshop) -> None:
        self._workshop = workshop
        self._flags = {"TF32"}
        self._profiles: list[dict[str, Any]] = []
        self._set: dict[str, Any] = {}
        self._cache: ITimingCache | None = None
        self._monitor: IProgressMonitor | None = None

    def set_flag(self, flag: BuilderFlag) -> None:
        self._flags.add(flag.name)

    def clear_flag(self, flag: BuilderFlag) -> None:
        self._flags.discard(flag.name)

    def get_flag(self, flag: BuilderFlag) -> bool:
        return flag.name in self._flags

    def set_memory_pool_limit(self, pool: MemoryPoolType, pool_size: int) -> None:
        self._set[pool.name] = pool_size

    def _set_streams(self, value: int) -> None:
        self._set["max_aux_streams"] = value

    def _set_level(self, value: int) -> None:
        self._set["builder_optimization_level"] = value

    def _set_hardware(self, value: HardwareCompatibilityLevel) -> None:
        self._set["hardware"] = value.name

    def _set_monitor(self, value: IProgressMonitor) -> None:
        self._monitor = value

    max_aux_streams = property(None, _set_streams)
    builder_optimization_level = property(None, _set_level)
    hardware_compatibility_level = property(None, _set_hardware)
    progress_monitor = property(None, _set_monitor)

    def add_optimization_profile(self, profile: IOptimizationProfile) -> int:
        self._profiles.append(profile._bounds)
        return len(self._profiles) - 1

    def create_timing_cache(self, serialized_timing_cache: Buffer) -> ITimingCache:
        return ITimingCache(bytes(serialized_timing_cache))

    def set_timing_cache(self, cache: ITimingCache, ignore_mismatch: bool) -> bool:
        assert not ignore_mismatch
        if cache._content and not self._workshop.takes_cache:
            return False
        self._cache = cache
        return True

    def get_timing_cache(self) -> ITimingCache:
        assert self._cache
        return self._cache


BuilderFlag = WeakBuilderFlag | StrongBuilderFlag
NetworkDefinitionCreationFlag = WeakCreationFlag | StrongCreationFlag


class Builder:
    _workshop: Workshop  # set by `make_builder_module`
    _is_strong = False

    def __init__(self, logger: ILogger) -> None:
        self._logger = logger

    def create_network(self, flags: int) -> INetworkDefinition:
        return INetworkDefinition(flags | self._is_strong)

    def create_builder_config(self) -> IBuilderConfig:
        self._workshop.configs.append(IBuilderConfig(self._workshop))
        return self._workshop.configs[-1]

    def create_optimization_profile(self) -> IOptimizationProfile:
        return IOptimizationProfile()

    def build_serialized_network(
        self, network: INetworkDefinition, config: IBuilderConfig
    ) -> IHostMemory | None:
        shop, monitor = self._workshop, config._monitor
        assert monitor
        monitor.phase_start("Building engine", None, 2)  # type: ignore[arg-type]
        for step in range(2):
            if not monitor.step_complete("Building engine", step):
                return None
        monitor.phase_finish("Building engine")
        if shop.refusal:
            self._logger.log(ILogger.Severity.ERROR, shop.refusal)
            return None
        if config._cache:
            config._cache._content += shop.cache
        return IHostMemory(plan_bytes(shop.plan))


def make_builder_module(
    world: World,
    workshop: Workshop,
    name: str = "tensorrt",
    version: str = "11.4.0.106",
    **more: Sequence[str],
) -> ModuleType:
    """Make a module of the fake that can also build; flags of precision only in a 10."""
    module = make_module(world, name, version, **more)
    is_strong = not version.startswith("10.")
    for each in PUBLIC:
        setattr(module, each.__name__, each)
    shop = {"_workshop": workshop, "_is_strong": is_strong}
    builder = type("Builder", (), {**vars(Builder), **shop})
    vars(module)["Builder"] = builder  # a class of its own for each module
    vars(module)["BuilderFlag"] = StrongBuilderFlag if is_strong else WeakBuilderFlag
    vars(module)["NetworkDefinitionCreationFlag"] = (
        StrongCreationFlag if is_strong else WeakCreationFlag
    )
    return module


PUBLIC = (
    MemoryPoolType,
    HardwareCompatibilityLevel,
    LayerType,
    ITimingCache,
    IProgressMonitor,
    ITensor,
    ILayer,
    INetworkDefinition,
    ParserError,
    OnnxParser,
    IOptimizationProfile,
    IBuilderConfig,
)
