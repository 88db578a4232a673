"""Many requests between two steps: the bound of the queue is of those that wait."""

from __future__ import annotations

import pytest

from headrace.errors import OverloadedError
from helpers.core_rig import Rig


def test_a_burst_fills_the_lanes_before_the_queue() -> None:
    """A front door that hands over batches must not refuse what a free lane could take."""
    rig = Rig(num_slots=2, max_queue_size=2)
    for index in range(6):  # four lanes, two may wait
        rig.submit(bytes([index]))
    with pytest.raises(OverloadedError, match="Exceeds maximum queue size: 2"):
        rig.submit(b"x")
    rig.asked.pop()
    assert rig.line.length == 2
    rig.run()
    assert all(asked.is_right for asked in rig.asked)
    rig.close()


def test_a_full_queue_stays_full_while_no_lane_is_free() -> None:
    """Looking for lanes lets nobody past the bound."""
    rig = Rig(num_slots=1, max_queue_size=1)
    for index in range(3):
        rig.submit(bytes([index]))
    for _ in range(5):
        with pytest.raises(OverloadedError):
            rig.submit(b"x")
        rig.asked.pop()
        rig.step()
    assert rig.line.length == 1
    rig.run()
    assert [asked.num_ends for asked in rig.asked] == [1, 1, 1]
    rig.close()
