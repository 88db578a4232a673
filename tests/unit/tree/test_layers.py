"""Imports go down only: rpc → link → scheduling → slots → engines → device."""

from __future__ import annotations

import pytest

from helpers.tree import PACKAGES, imports, is_within, modules

# From the bottom up; each may import itself, what stands before it, and the ground.
LAYERS = ("device", "regions", "engines", "slots", "scheduling", "link", "rpc")
# What everyone may import, and what of ours it may import itself.
GROUND = {
    "errors": (),
    "escape": (),
    "release": (),
    "config": ("errors", "escape"),
    "metrics": ("errors",),
    "metrics_http": ("errors", "metrics"),
    "response_cache": (),
}
# Who puts the parts together or shows them to the operator; may see all, and no layer may see it.
COMPOSITION = (
    *("access", "client_shm", "descriptors", "port"),
    *("__main__", "app", "banner", "catalog", "cli", "fronts", "life", "loader", "logging_setup"),
    *("building", "control", "memory", "model", "naps", "observe", "opening", "table", "trials"),
    *("ensemble", "lines", "warm_batches", "warm_samples", "sequence_seats"),
    *("ladder", "timeline"),
)


def part_of(name: str) -> str:
    """Return the layer or top-level module that a dotted name of `headrace` lies in."""
    return name.split(".")[1]


def allowed(part: str) -> set[str]:
    """Return the parts of `headrace` that this part may import."""
    if part in GROUND:
        return {part, *GROUND[part]}
    return {*LAYERS[: LAYERS.index(part) + 1], *GROUND}


def server_modules() -> list[str]:
    """Return the server's modules that lie in a part."""
    return [name for name in modules("headrace") if "." in name]


@pytest.mark.parametrize("name", server_modules())
def test_a_module_imports_only_its_own_layer_and_those_below(name: str) -> None:
    """A lower layer never knows a higher one."""
    part = part_of(name)
    if part in COMPOSITION:
        return
    path = modules("headrace")[name]
    upward = [
        f"{path}:{line} imports {target}; {part} may see {sorted(allowed(part))}"
        for line, target in imports(path)
        if is_within(target, "headrace")
        and "." in target
        and part_of(target) not in {*allowed(part), "__version__"}
    ]
    assert not upward


def test_every_module_has_a_place() -> None:
    """A new folder or top-level module is placed in this file's tables before it lands."""
    placed = {*LAYERS, *GROUND, *COMPOSITION}
    assert {part_of(name) for name in server_modules()} <= placed
    assert set(LAYERS) <= {part_of(name) for name in server_modules()}


@pytest.mark.parametrize(
    ("package", "strangers"),
    [
        ("headrace", ["headrace_client"]),
        ("headrace_client", ["headrace"]),
        ("headrace_proto", ["headrace", "headrace_client", "grpc"]),
    ],
)
def test_distributions_meet_only_in_proto(package: str, strangers: list[str]) -> None:
    """Client and server share the wire contract and nothing else."""
    assert package in PACKAGES
    found = [
        f"{path}:{line} imports {target}"
        for path in modules(package).values()
        for line, target in imports(path)
        if any(is_within(target, stranger) for stranger in strangers)
    ]
    assert not found


@pytest.mark.parametrize("layer", [layer for layer in LAYERS if layer != "rpc"])
def test_only_the_front_door_knows_grpc(layer: str) -> None:
    """Below rpc nobody knows which transport a request came by."""
    transports = ("grpc", "grpc_health", "grpc_reflection", "pygrpc_native")
    found = [
        f"{path}:{line} imports {target}"
        for name, path in modules("headrace").items()
        if is_within(name, f"headrace.{layer}")
        for line, target in imports(path)
        if any(is_within(target, transport) for transport in transports)
    ]
    assert not found
