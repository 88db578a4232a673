"""What the builder code calls exists in the compiled bindings of every TensorRT that can build."""

from __future__ import annotations

import pytest

from headrace.device.sim import SimDevice
from headrace.engines.trt_build_api import (
    BUILDER_API,
    BUILDER_ENUMS,
    OPTIONAL_BUILDER_API,
    OPTIONAL_BUILDER_MEMBERS,
)
from helpers.fake_builder import Workshop, make_builder_module
from helpers.fake_plans import double_plan
from helpers.fake_tensorrt import World
from helpers.trt_bindings import describe, member, missing
from helpers.trt_describe import describe as describe_module
from helpers.trt_wheels import BINDINGS, Wheel

# The first test of a run fetches wheels of about 1 MB each.
pytestmark = pytest.mark.timeout(300)

BUILDERS = [wheel for wheel in BINDINGS if "lean" not in wheel.module]
LABELS = [wheel.label for wheel in BUILDERS]


@pytest.mark.parametrize("wheel", BUILDERS, ids=LABELS)
def test_used_builder_api_is_there(wheel: Wheel) -> None:
    """Every class, member, argument and result that a build relies on is in the bindings."""
    real = describe(wheel)
    assert [x for owner in BUILDER_API for x in missing(BUILDER_API, real.classes, owner)] == []
    assert [x for owner in BUILDER_ENUMS for x in missing(BUILDER_ENUMS, real.enums, owner)] == []


@pytest.mark.parametrize("wheel", BUILDERS, ids=LABELS)
def test_optional_builder_api_is_there_as_declared_or_not_at_all(wheel: Wheel) -> None:
    """What a build probes for has, where it exists, the arguments that it is called with."""
    real = describe(wheel)
    for owner, lines in OPTIONAL_BUILDER_API.items():
        names = {member(line) for line in real.classes[owner]}
        there = tuple(line for line in lines if member(line) in names)
        assert missing({owner: there}, real.classes, owner) == []


def test_every_optional_builder_line_is_real_somewhere() -> None:
    """No line and no enum member that is probed for is a name that never existed."""
    reals = [describe(wheel) for wheel in BUILDERS]
    for owner, lines in OPTIONAL_BUILDER_API.items():
        assert set(lines) <= {line for real in reals for line in real.classes[owner]}
    for owner, names in OPTIONAL_BUILDER_MEMBERS.items():
        assert set(names) <= {name for real in reals for name in real.enums.get(owner, [])}


@pytest.mark.parametrize("wheel", BUILDERS, ids=LABELS)
def test_precision_flags_are_those_of_tensorrt_10(wheel: Wheel) -> None:
    """Weakly typed precision exists until 10.16 and nowhere after, as the refusal says."""
    flags = set(describe(wheel).enums["BuilderFlag"])
    has_all = set(OPTIONAL_BUILDER_MEMBERS["BuilderFlag"]) <= flags
    has_any = bool(set(OPTIONAL_BUILDER_MEMBERS["BuilderFlag"]) & flags)
    assert has_all == has_any == wheel.version.startswith("10.")


@pytest.mark.parametrize("wheel", BINDINGS, ids=[wheel.label for wheel in BINDINGS])
def test_the_lean_runtime_cannot_build(wheel: Wheel) -> None:
    """Builder and parser are where the choice of a builder looks for them, and not in lean."""
    classes = describe(wheel).classes
    assert ("Builder" in classes) == ("OnnxParser" in classes) == (wheel in BUILDERS)


@pytest.mark.parametrize("version", ["10.16.1.11", "11.4.0.106"])
def test_the_fake_builder_offers_just_what_a_build_may_use(version: str) -> None:
    """The fake of the unit tests has every listed line and no other; its enums are real ones."""
    world, workshop = World(SimDevice()), Workshop(double_plan())
    fake = describe_module(make_builder_module(world, workshop, version=version))
    made_by_builder = ("INetworkDefinition", "ITensor", "ILayer", "ITimingCache", "IBuilderConfig")
    for owner, lines in BUILDER_API.items():
        own = {"__init__"} if owner in (*made_by_builder, "IOptimizationProfile") else set()
        assert {x for x in fake.classes[owner] if x.partition("(")[0] not in own} == set(lines)
    (wheel,) = (each for each in BUILDERS if each.version == version)
    for owner, names in BUILDER_ENUMS.items():
        assert set(names) <= set(fake.enums[owner]) <= set(describe(wheel).enums[owner])
