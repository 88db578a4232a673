"""Writes docs/tensorrt-versions.md: which release has what, read from the compiled bindings.

python -m helpers.trt_matrix            prints the page
python -m helpers.trt_matrix FILE       writes it
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from headrace.engines.trt_api import OPTIONAL_API, OPTIONAL_ENUMS, USED_API, USED_ENUMS
from headrace.engines.trt_build_api import (
    BUILDER_API,
    BUILDER_ENUMS,
    OPTIONAL_BUILDER_API,
    OPTIONAL_BUILDER_MEMBERS,
)
from helpers.trt_bindings import describe, member, missing
from helpers.trt_describe import Description
from helpers.trt_wheels import ANCESTORS, BINDINGS, Wheel

PRODUCTS = {"tensorrt_lean_bindings": "lean ", "tensorrt_rtx_bindings": "RTX "}

# What code for TensorRT 8 is made of, and what takes its place: members by class.
MIGRATION: Mapping[str, tuple[str, ...]] = {
    "IExecutionContext": (
        *("execute", "execute_async", "execute_v2", "execute_async_v2", "execute_async_v3"),
        *("set_binding_shape", "set_input_shape", "set_tensor_address", "set_output_allocator"),
        *("set_optimization_profile_async", "infer_shapes", "device_memory", "set_device_memory"),
    ),
    "ICudaEngine": (
        *("num_bindings", "get_binding_name", "get_binding_shape", "get_binding_dtype"),
        *("max_batch_size", "has_implicit_batch_dimension"),
        *("num_io_tensors", "get_tensor_name", "get_tensor_mode", "get_tensor_dtype"),
        *("get_tensor_shape", "get_tensor_profile_shape", "create_execution_context"),
        *("create_execution_context_without_device_memory", "create_runtime_config"),
        *("device_memory_size", "device_memory_size_v2"),
    ),
    "Builder": (
        *("max_batch_size", "build_engine", "build_serialized_network"),
        *("platform_has_fast_fp16", "create_optimization_profile"),
    ),
    "IBuilderConfig": (
        *("max_workspace_size", "set_memory_pool_limit", "int8_calibrator", "max_aux_streams"),
        *("progress_monitor", "hardware_compatibility_level", "num_compute_capabilities"),
    ),
}
MIGRATION_ENUMS: Mapping[str, tuple[str, ...]] = {
    "BuilderFlag": ("FP16", "BF16", "INT8", "FP8", "TF32", "VERSION_COMPATIBLE"),
    "NetworkDefinitionCreationFlag": ("EXPLICIT_BATCH", "STRONGLY_TYPED"),
}

Row = tuple[str, list[str]]

HEAD = """\
# TensorRT releases

Which release has what, read from the compiled Python bindings of each: they are imported without
their libraries, so that classes, signatures and enums are real and nothing can run. What headrace
serves with begins at {oldest}. `make trt-matrix` writes this page, and a test holds it.

What was run and what was only compared is in [decisions.md](decisions.md#what-is-not-proven-here).
"""


def render() -> str:
    """Return the page."""
    wheels = (*ANCESTORS, *BINDINGS)
    reals = [describe(wheel) for wheel in wheels]
    sections = [
        HEAD.format(oldest=_label(BINDINGS[0])),
        "## What a migration meets\n\nyes: there, whatever its arguments.\n",
        _table("member", wheels, [*_members(reals), *_enum_members(MIGRATION_ENUMS, reals)]),
        "## What loading and running a plan uses\n\nLines with these very arguments and results.\n",
        _table("class", BINDINGS, list(_counts(USED_API, USED_ENUMS, _served(reals)))),
        "Used only where it is there:\n",
        _table("line", BINDINGS, list(_optional(_served(reals)))),
        "## What building a plan uses\n\nThe lean runtime has no builder.\n",
        _table("class", BINDINGS, list(_counts(BUILDER_API, BUILDER_ENUMS, _served(reals)))),
        "Used only where it is there:\n",
        _table("line or member", BINDINGS, list(_optional_of_builder(_served(reals)))),
    ]
    return "\n".join(sections).rstrip() + "\n"


def _served(reals: list[Description]) -> list[Description]:
    return reals[len(ANCESTORS) :]


def _label(wheel: Wheel) -> str:
    number = ".".join(wheel.version.split(".")[:2])
    return f"{PRODUCTS.get(wheel.module, '')}{number}"


def _table(what: str, wheels: tuple[Wheel, ...], rows: list[Row]) -> str:
    lines = [[what, *map(_label, wheels)], ["---", *("---" for _ in wheels)]]
    lines += [[f"`{name}`", *cells] for name, cells in rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _mark(is_there: bool) -> str:
    return "yes" if is_there else "–"


def _members(reals: list[Description]) -> Iterator[Row]:
    for owner, names in MIGRATION.items():
        for name in names:
            yield (
                f"{owner}.{name}",
                [_mark(name in map(member, real.classes.get(owner, []))) for real in reals],
            )


def _enum_members(enums: Mapping[str, tuple[str, ...]], reals: list[Description]) -> Iterator[Row]:
    for owner, names in enums.items():
        for name in names:
            yield f"{owner}.{name}", [_mark(name in real.enums.get(owner, [])) for real in reals]


def _counts(
    api: Mapping[str, tuple[str, ...]],
    enums: Mapping[str, tuple[str, ...]],
    reals: list[Description],
) -> Iterator[Row]:
    """Give how many of the lines of each class are there, of how many."""
    for used, kind in ((api, "classes"), (enums, "enums")):
        for owner, lines in used.items():
            there = [
                len(lines) - len(missing(used, getattr(real, kind), owner))
                if owner in getattr(real, kind)
                else 0
                for real in reals
            ]
            yield owner, [f"{count} of {len(lines)}" if count else "–" for count in there]


def _optional(reals: list[Description]) -> Iterator[Row]:
    for owner, lines in OPTIONAL_API.items():
        for line in lines:
            name = f"{owner}.{line}" if owner else line
            yield name, [_mark(line in real.classes.get(owner, [])) for real in reals]
    for owner in OPTIONAL_ENUMS:
        yield owner, [_mark(owner in real.enums) for real in reals]


def _optional_of_builder(reals: list[Description]) -> Iterator[Row]:
    for owner, lines in OPTIONAL_BUILDER_API.items():
        for line in lines:
            yield f"{owner}.{line}", [_mark(line in real.classes.get(owner, [])) for real in reals]
    yield from _enum_members(OPTIONAL_BUILDER_MEMBERS, reals)


if __name__ == "__main__":
    page = render()
    if sys.argv[1:]:
        Path(sys.argv[1]).write_text(page, "utf-8")
    else:
        sys.stdout.write(page)
