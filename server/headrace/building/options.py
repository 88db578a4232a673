"""What a build is asked for, before it is known which TensorRT will do it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final, Literal

from headrace.building.notation import Shapes

Hardware = Literal["none", "ampere+", "same-compute-capability"]

HARDWARE: Final[Mapping[Hardware, str]] = MappingProxyType(
    {
        "none": "NONE",
        "ampere+": "AMPERE_PLUS",
        "same-compute-capability": "SAME_COMPUTE_CAPABILITY",
    }
)
"""Our word → the member of `HardwareCompatibilityLevel`."""

PRECISIONS: Final = ("fp16", "bf16", "int8", "fp8")
"""Types that TensorRT 10 may be allowed beside fp32; in upper case they are its `BuilderFlag`s."""


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """How to build.

    Attributes:
        profiles: Shapes of each optimization profile; empty to take them from a configuration.
        config_path: The config.pbtxt to take them from; None looks beside the model.
        precisions: Of `PRECISIONS`: what TensorRT may use beside fp32.
        strongly_typed: Keep to the types of the graph; always so since 11.0 and in RTX.
        allow_tf32: Let fp32 products be computed with 10-bit mantissas, TensorRT's own default.
        workspace_bytes: Scratch memory a layer may use at most; None leaves it to TensorRT.
        optimization_level: 0 (fast build) to 5; None leaves it to TensorRT.
        max_aux_streams: Streams that one context may use beside its own.
        compute_capabilities: RTX only: such as "8.6"; empty for all that it knows.
    """

    profiles: tuple[Shapes, ...] = ()
    config_path: Path | None = None
    precisions: tuple[str, ...] = ()
    strongly_typed: bool = False
    allow_tf32: bool = True
    version_compatible: bool = False
    exclude_lean_runtime: bool = False
    hardware: Hardware = "none"
    compute_capabilities: tuple[str, ...] = ()
    timing_cache: Path | None = None
    workspace_bytes: int | None = None
    optimization_level: int | None = None
    max_aux_streams: int = 0
