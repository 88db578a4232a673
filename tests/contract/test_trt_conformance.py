"""What the adapter calls exists in the compiled bindings of every TensorRT it is meant for."""

from __future__ import annotations

import pytest

from headrace.device.sim import SimDevice
from headrace.engines.trt_api import (
    OLDEST_VERSION,
    OPTIONAL_API,
    OPTIONAL_ENUMS,
    USED_API,
    USED_ENUMS,
)
from helpers.fake_tensorrt import World, make_module
from helpers.trt_bindings import describe, member, missing
from helpers.trt_describe import describe as describe_module
from helpers.trt_wheels import BINDINGS, Wheel

# The first test of a run fetches wheels of about 1 MB each.
pytestmark = pytest.mark.timeout(300)

LABELS = [wheel.label for wheel in BINDINGS]


@pytest.mark.parametrize("wheel", BINDINGS, ids=LABELS)
def test_used_api_is_there(wheel: Wheel) -> None:
    """Every class, member, argument and result that the adapter relies on is in the bindings."""
    real = describe(wheel)
    assert [line for owner in USED_API for line in missing(USED_API, real.classes, owner)] == []
    assert [line for owner in USED_ENUMS for line in missing(USED_ENUMS, real.enums, owner)] == []


@pytest.mark.parametrize("wheel", BINDINGS, ids=LABELS)
def test_optional_api_is_there_as_declared_or_not_at_all(wheel: Wheel) -> None:
    """What the adapter probes for has, where it exists, the arguments that it is called with."""
    real = describe(wheel)
    for owner, lines in OPTIONAL_API.items():
        names = {member(line) for line in real.classes.get(owner, [])}
        there = tuple(line for line in lines if member(line) in names)
        if "create_runtime_config" not in names:  # then its result cannot be an argument either
            there = tuple(line for line in there if "IRuntimeConfig" not in line)
        assert missing({owner: there}, real.classes, owner) == []
    for owner in OPTIONAL_ENUMS.keys() & real.enums.keys():
        assert missing(OPTIONAL_ENUMS, real.enums, owner) == []


def test_every_optional_line_is_real_somewhere() -> None:
    """No line that is probed for is a name that never existed."""
    reals = [describe(wheel) for wheel in BINDINGS]
    for owner, lines in OPTIONAL_API.items():
        known = {line for real in reals for line in real.classes.get(owner, [])}
        assert set(lines) <= known
    for owner in OPTIONAL_ENUMS:
        assert any(owner in real.enums for real in reals)


def test_oldest_version_is_the_oldest_one_tested() -> None:
    """The floor that the adapter enforces is a release that the comparison covers."""
    versions = [
        tuple(map(int, wheel.version.split(".")[:2]))
        for wheel in BINDINGS
        if wheel.module == "tensorrt_bindings"
    ]
    assert min(versions) == OLDEST_VERSION
    assert all(describe(wheel).version == wheel.version for wheel in BINDINGS)


def test_fake_offers_just_what_the_adapter_may_use() -> None:
    """The fake of the unit tests has every listed line and no other, so it cannot drift."""
    fake = describe_module(make_module(World(SimDevice()), "tensorrt_rtx"))
    listed = {
        owner: {*USED_API.get(owner, ()), *OPTIONAL_API.get(owner, ())}
        for owner in {*USED_API, *OPTIONAL_API}
    }
    made_by_runtime = {"ICudaEngine", "IExecutionContext"}  # how the fake makes them is its own
    offered = {
        owner: {x for x in lines if owner not in made_by_runtime or not x.startswith("__init__")}
        for owner, lines in fake.classes.items()
    }
    assert offered == listed


@pytest.mark.parametrize("owner", [*USED_ENUMS, *OPTIONAL_ENUMS])
def test_enums_of_the_fake_are_real(owner: str) -> None:
    """Every enum member of the fake is one of TensorRT's."""
    fake = describe_module(make_module(World(SimDevice()), "tensorrt_rtx"))
    known = {name for wheel in BINDINGS for name in describe(wheel).enums.get(owner, [])}
    assert set(fake.enums[owner]) <= known
    assert {*USED_ENUMS.get(owner, ()), *OPTIONAL_ENUMS.get(owner, ())} <= set(fake.enums[owner])
