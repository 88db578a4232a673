"""Requests that wait for a staging block: in order of arrival, whatever their size."""

from __future__ import annotations

from headrace.scheduling.request import RequestState
from headrace.slots.blocks import size_class
from helpers.core_rig import Rig

SMALL, LARGE = bytes(1000), bytes(6000)


def test_a_large_request_is_not_starved_by_small_ones() -> None:
    """What would still fit waits behind a request that came first and does not fit."""
    sizes = Rig()
    small, large = (size_class(sizes.layout(len(one)).size_bytes) for one in (SMALL, LARGE))
    sizes.close()
    rig = Rig(num_slots=1, budget_bytes=small + large)
    rig.submit(SMALL)
    rig.submit(SMALL)  # a small block is left of the budget, and room for another
    waiting = [rig.submit(LARGE), rig.submit(SMALL)]
    assert small * 3 <= small + large, "the last one would fit"
    assert [one.request.state for one in waiting] == [RequestState.WAITING] * 2
    rig.run()
    assert all(one.is_right for one in rig.asked)
    rig.close()
