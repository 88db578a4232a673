"""The account of a build, for people and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.building import Built
    from headrace.building.shapes import NetworkTensor


def facts(built: Built) -> list[tuple[str, object]]:
    """Return what to print, one fact a line."""
    from headrace.building.shapes import describe

    network = built.network
    found: list[tuple[str, object]] = [
        ("builder", f"{built.builder.name} {built.builder.version}"),
        *((f"input {each.name}", _told(each)) for each in network.inputs),
        *((f"output {each.name}", _told(each)) for each in network.outputs),
        *(
            (f"profile {index}", f"{describe(shapes)} (min … opt … max)")
            for index, shapes in enumerate(built.profiles)
        ),
        ("shapes from", built.shapes_from),
        ("precision", built.precision.describe()),
    ]
    if built.is_cache_used:
        found.append(("timing cache", "of an earlier build, used"))
    if built.header is None:
        return [*found, ("built", "nothing: a dry run")]
    size = f"{built.header.size_bytes:,} bytes"
    return [
        *found,
        ("plan", f"{built.header.path}, {size}"),
        ("origin", built.header.describe()),
        ("check", built.check),
    ]


def as_dict(built: Built) -> dict[str, Any]:
    """Return the account for JSON; shapes have -1 for dynamic dimensions."""
    header = built.header
    return {
        "builder": {"name": built.builder.name, "version": built.builder.version},
        "inputs": _tensors(built.network.inputs),
        "outputs": _tensors(built.network.outputs),
        "profiles": [
            {name: [each.minimum, each.optimum, each.maximum] for name, each in shapes.items()}
            for shapes in built.profiles
        ],
        "shapes_from": built.shapes_from,
        "precision": {
            "is_strongly_typed": built.precision.is_strongly_typed,
            "allowed": built.precision.allowed,
            "uses_tf32": built.precision.uses_tf32,
            "datatypes": dict(built.precision.datatypes),
        },
        "is_timing_cache_used": built.is_cache_used,
        "plan": None
        if header is None
        else {
            "path": str(header.path),
            "size_bytes": header.size_bytes,
            "built_by": header.version_text,
            "compute_capabilities": header.compute_capabilities,
        },
        "check": built.check,
    }


def _tensors(tensors: Sequence[NetworkTensor]) -> list[dict[str, Any]]:
    return [{"name": each.name, "datatype": each.datatype, "shape": each.shape} for each in tensors]


def _told(tensor: NetworkTensor) -> str:
    from headrace.building.notation import written
    from headrace.building.precision import short

    kind = ", a shape tensor" if tensor.is_shape_tensor else ""
    return f"{short(tensor.datatype)} {written(tensor.shape)}{kind}"
