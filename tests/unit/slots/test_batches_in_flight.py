"""Batches under the real scheduler on the virtual device: blocks, faults, cancellation, overlap."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from headrace.engines.base import Kind, Layout
from headrace.engines.layout import plan_layout
from headrace.errors import AbandonedError, DeviceError, EngineError
from headrace.slots import gather
from headrace.slots.state import LaneState, SlotState
from helpers.core_rig import Asked, Rig
from helpers.delay_batcher import DelayBatcher

MAX_ROWS = 64


class BatchingRig(Rig):
    """Every byte is a row; what is queued when a lane is free runs together."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.kind = Kind(self._plan)
        self.together = DelayBatcher(MAX_ROWS)
        self.line.batcher = self.together

    def layout(self, size: int) -> Layout:
        """Return the kind's layout for so many rows."""
        return self.kind.layout(size)

    def request(self, payload: bytes, *, deadline: float | None = None) -> Asked:
        """Make a request of as many rows as bytes."""
        asked = super().request(payload, deadline=deadline)
        asked.request.rows = len(payload)
        return asked

    def _plan(self, rows: int) -> Layout:
        return replace(plan_layout([(rows,)], [rows], [(rows,)], [rows]), kind=self.kind)


@pytest.fixture(params=["cpu gathers", "a copy for each"])
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways into a GPU, whatever the sizes."""
    limit = gather.GATHER_BELOW_BYTES if request.param == "cpu gathers" else 0
    monkeypatch.setattr(gather, "GATHER_BELOW_BYTES", limit)


@pytest.fixture(params=[False, True], ids=["gpu", "unified"])
def rig(request: pytest.FixtureRequest, _way: None) -> Iterator[BatchingRig]:
    """One slot; afterwards every request has ended once and every block is back."""
    rig = BatchingRig(num_slots=1, is_unified=request.param, budget_bytes=8 * 4096)
    yield rig
    rig.run()
    assert all(asked.num_ends == 1 for asked in rig.asked)
    assert rig.blocks.num_leased == 0
    rig.close()


def test_many_batches_on_few_blocks(rig: BatchingRig) -> None:
    """Blocks and lanes are used again and again, and nobody gets another one's rows."""
    rng = random.Random(3)
    for turn in range(300):
        rig.submit(rng.randbytes(rng.randint(1, 20)))
        if turn % 4 == 0:
            rig.step()
        if turn % 3 == 0:
            rig.device.step()
        if turn % 25 == 0:
            rig.run()
    rig.run()
    assert all(asked.is_right for asked in rig.asked)


def test_a_batch_is_enqueued_behind_another(rig: BatchingRig) -> None:
    """Both lanes are filled, each with memory of its own."""
    first = [rig.submit(bytes([index])) for index in range(3)]
    rig.step()
    second = [rig.submit(bytes([100 + index])) for index in range(3)]
    rig.step()
    assert [len(lane.batch.requests) for lane in rig.slots[0].in_flight if lane.batch] == [3, 3]
    rig.run()
    assert all(asked.is_right for asked in (*first, *second))


def test_a_cancelled_member_keeps_its_block_until_the_event(rig: BatchingRig) -> None:
    """Its result alone is dropped; the others are answered."""
    asked = [rig.submit(bytes([index] * 3)) for index in range(4)]
    rig.step()
    rig.scheduler.cancel(asked[1].request)
    for _ in range(3):
        rig.step()
    assert rig.blocks.num_leased == 4
    rig.run()
    assert [each.is_right for each in asked] == [True, False, True, True]
    assert [type(error) for error in asked[1].errors] == [AbandonedError]


def test_a_failed_run_ends_every_member_with_the_error(rig: BatchingRig) -> None:
    """And the next batch on the same lane is right."""
    rig.device.fail_launch(EngineError("refused"))
    asked = [rig.submit(bytes([index])) for index in range(3)]
    rig.run()
    assert [[str(error) for error in each.errors] for each in asked] == [["refused"]] * 3
    after = [rig.submit(bytes([index])) for index in range(3)]
    rig.run()
    assert all(each.is_right for each in after)


@pytest.mark.parametrize("num_copied", [0, 1, 2, 3, 4])
def test_copies_that_fail_half_way_are_covered_by_the_event(
    monkeypatch: pytest.MonkeyPatch, num_copied: int
) -> None:
    """What was enqueued before the failure still reads the blocks: they stay until it is done."""
    monkeypatch.setattr(gather, "GATHER_BELOW_BYTES", 0)
    rig = BatchingRig(num_slots=1)
    stream = rig.slots[0]._stream
    copies: dict[str, Any] = {"copy_h2d": stream.copy_h2d, "copy_d2h": stream.copy_d2h}
    num_left = num_copied

    def limited(name: str) -> Any:
        def copy(*args: Any) -> None:
            nonlocal num_left
            if num_left == 0:
                raise DeviceError("the copy was refused")
            num_left -= 1
            copies[name](*args)

        return copy

    for name in copies:
        monkeypatch.setattr(stream, name, limited(name))
    asked = [rig.submit(bytes([index])) for index in range(3)]
    rig.step()
    (lane,) = rig.slots[0].in_flight
    for _ in range(3):
        rig.step()
    assert (lane.state, rig.blocks.num_leased) == (LaneState.IN_FLIGHT, 3)
    rig.run()
    assert [[str(error) for error in each.errors] for each in asked] == [
        ["the copy was refused"]
    ] * 3
    assert (lane.state, rig.blocks.num_leased) == (LaneState.FREE, 0)
    num_left = 1 << 30
    after = [rig.submit(bytes([index])) for index in range(3)]
    rig.run()
    assert all(each.is_right for each in after)
    rig.close()


@pytest.mark.parametrize("after", [0, 1])
def test_no_memory_to_gather_in_fails_the_batch_alone(after: int) -> None:
    """Of the device, or pinned: the members end with the error, and the slot goes on."""
    rig = BatchingRig(num_slots=1)
    rig.blocks.reserve(4096, 8)
    rig.device.fail_alloc(after=after)
    asked = [rig.submit(bytes([index])) for index in range(3)]
    rig.run()
    assert [[type(error) for error in each.errors] for each in asked] == [[DeviceError]] * 3
    again = [rig.submit(bytes([index])) for index in range(3)]
    rig.run()
    assert all(each.is_right for each in again)
    rig.close()


@pytest.mark.parametrize("is_unified", [False, True])
def test_a_faulted_slot_keeps_the_blocks_of_all_members(is_unified: bool) -> None:
    """The device may still write into any of them; each request ends once all the same."""
    rig = BatchingRig(num_slots=2, is_unified=is_unified, stall_timeout_s=0.5, launch_s=3600.0)
    asked = [rig.submit(bytes([index])) for index in range(3)]
    rig.step()
    rig.device.run_until(1.0)
    rig.step()
    (slot,) = [slot for slot in rig.slots if slot.state is SlotState.FAULTED]
    assert [len(each.errors) for each in asked] == [1, 1, 1]
    assert rig.blocks.num_leased == 3
    assert all(each.request.block is None for each in asked)
    rig.device.run_until(5000.0)  # what was in flight ends at last, and finds its blocks
    rig.device.launch_s = 0.001
    after = [rig.submit(bytes([index])) for index in range(3)]
    rig.run()
    assert all(each.is_right for each in after)
    assert slot.free_lane() is None
    rig.pool.close()
    rig.engine.close()
