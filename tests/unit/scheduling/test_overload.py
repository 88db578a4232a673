"""Goodput at three times what a device can do: the whole core in virtual time.

The aim is 0.95 of the most at any load. Where less is reached the test holds what is, and
docs/scheduling-simulation.md shows it.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from load.simulate.core import FREE_HOST, HostCost
from load.simulate.overloads import COSTLY_HOST, POLICIES, SHAPES, Case, kept

AIM = 0.95
LOADS = (0.85, 1.0, 1.2, 3.0)
# By device, service times of a deadline, and policy. Four streams that share a device do not settle
# on how many batches are best at work at once where batches are nearly as long as deadlines.
REACHED = {
    ("H200, 4 slots", 10.0, "target"): 0.80,
    ("H200, 4 slots", 2.5, "at once"): 0.45,
    ("H200, 4 slots", 2.5, "target"): 0.70,
}
CHEAP_HOST = replace(COSTLY_HOST, refuse_s=20e-6)


def case(shape: str, services: float, policy: str, host: HostCost = FREE_HOST) -> Case:
    """Return a case of few requests, twice as many where deadlines let little be averaged."""
    num_requests = 1600 if (shape, services) == ("H200, 1 slot", 2.5) else 800
    return Case(SHAPES[shape], services, POLICIES[policy], host, num_requests)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("services", [10.0, 2.5])
@pytest.mark.parametrize("shape", SHAPES)
def test_goodput_holds_through_overload(shape: str, services: float, policy: str) -> None:
    """Whether deadlines are ten services or two and a half."""
    floor = REACHED.get((shape, services, policy), AIM)
    assert kept(case(shape, services, policy), LOADS) >= floor


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    ("shape", "host", "load"),
    [
        ("CPU, 2 slots", COSTLY_HOST, 3.0),
        ("H200, 1 slot", CHEAP_HOST, 3.0),
        ("H200, 4 slots", CHEAP_HOST, 3.0),
        ("H200, 1 slot", COSTLY_HOST, 1.2),
        ("H200, 4 slots", COSTLY_HOST, 1.2),
    ],
)
def test_refusals_may_cost_as_long_as_the_host_keeps_up(
    shape: str, host: HostCost, load: float, policy: str
) -> None:
    """60 us each for a slow device, and beyond what a fast one can do; 20 us at three times it."""
    assert kept(case(shape, 10.0, policy, host), (0.85, 1.0, load)) >= AIM


@pytest.mark.parametrize("policy", POLICIES)
def test_beyond_what_the_host_can_refuse_some_is_still_answered(policy: str) -> None:
    """18,460 refusals a second at 60 us are 1.1 s of one thread: messages grow old unread."""
    asked = case("H200, 1 slot", 10.0, policy, COSTLY_HOST)
    assert 0.2 <= kept(asked, (0.85, 1.0, 3.0)) < AIM
