"""Says honestly in which precision a plan was built: what was allowed, and what the graph says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.building.network import Network
from headrace.building.options import PRECISIONS
from headrace.building.tools import Tools

SHORT = {"FLOAT": "fp32", "HALF": "fp16"}
"""TensorRT's names that people know by another; the rest is the same in lower case."""


@dataclass(frozen=True, slots=True)
class Precision:
    """What decided the types inside a plan.

    Attributes:
        is_strongly_typed: The graph did, wholly.
        allowed: Flags that took effect, read back from the builder: TensorRT chose among these.
        uses_tf32: fp32 products may be computed with 10-bit mantissas.
        datatypes: Type → how many of the graph's results have it.
    """

    is_strongly_typed: bool
    allowed: tuple[str, ...]
    uses_tf32: bool
    datatypes: Mapping[str, int]

    def describe(self) -> str:
        """Say it in one line."""
        counted = ", ".join(f"{count} {name}" for name, count in self.datatypes.items())
        tf32 = "; fp32 products may use TF32" if self.uses_tf32 else "; no TF32"
        if self.is_strongly_typed:
            return f"that of the graph (strongly typed): its results are {counted}{tf32}"
        allowed = ", ".join(("fp32", *self.allowed))
        return f"chosen by TensorRT among {allowed}; the graph's results were {counted}{tf32}"


def read_precision(tools: Tools, config: Any, network: Network) -> Precision:
    """Read back what took effect; a strongly typed network heeds no flag of precision."""
    flags = tools.trt.BuilderFlag
    on = [
        name
        for name in PRECISIONS
        if hasattr(flags, name.upper()) and config.get_flag(getattr(flags, name.upper()))
    ]
    return Precision(
        is_strongly_typed=network.is_strongly_typed,
        allowed=() if network.is_strongly_typed else tuple(on),
        uses_tf32=config.get_flag(flags.TF32),
        datatypes={short(name): count for name, count in network.datatypes.items()},
    )


def short(datatype: str) -> str:
    """Return the name that people know a TensorRT type by."""
    return SHORT.get(datatype, datatype.lower())
