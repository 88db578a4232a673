"""The fuzzer's bodies bear its seeds and what a few changed bytes make of them."""

from __future__ import annotations

import random

import pytest

from fuzz.seeds import BODIES, seeds
from helpers.proto_wire import mutate

# protobuf's reader of texts keeps "\\8" as it stands, with a warning.
pytestmark = pytest.mark.filterwarnings("ignore:invalid escape:DeprecationWarning")

NUM_MUTANTS = 300  # of each body: a smoke, no search


@pytest.mark.parametrize("name", BODIES)
def test_a_body_bears_its_seeds(name: str) -> None:
    """And there are some, so that a search does not begin with nothing."""
    beginnings = seeds(name)
    assert len(beginnings) >= 5
    for data in beginnings:
        BODIES[name](data)


@pytest.mark.parametrize("name", BODIES)
def test_a_body_bears_what_is_broken(name: str) -> None:
    """Any bytes are taken or refused; nothing else is raised."""
    beginnings, dice = seeds(name), random.Random(name)
    for _ in range(NUM_MUTANTS):
        data = mutate(dice.choice(beginnings), dice)
        try:
            BODIES[name](data)
        except Exception as error:
            raise AssertionError(f"{name} failed at {data!r}") from error
