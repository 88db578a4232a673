"""What batches are warmed up with: memory held ahead, the table, and what the log says."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from headrace.device.sim import SimDevice
from headrace.errors import DeviceError
from headrace.slots.capacity import Capacity
from headrace.warm_batches import WarmBatches, batching_of, describe, worthwhile_rows
from helpers.batch_rig import BatchRig
from helpers.served import served

SIZES = (1, 8, 4, 2)


@pytest.fixture
def rig() -> Iterator[BatchRig]:
    """One slot of a virtual GPU."""
    device = SimDevice()
    rig = BatchRig(device, device.open_stream())
    yield rig
    rig.close()
    assert device.leaks() == []


def warm(rig: BatchRig, *sizes: int) -> WarmBatches:
    """Batches of these sizes."""
    layouts = {rows: rig.kind.layout(rows) for rows in sizes}
    return WarmBatches("m", layouts, rig.blocks, clock=lambda: 0.0)


def test_memory_is_there_before_the_first_run(rig: BatchRig) -> None:
    """On every lane, on the device and pinned; all sizes then run in it."""
    batches = warm(rig, *SIZES)
    batches.hold(rig.slot)
    memories = [lane.memory for lane in rig.slot.lanes]
    assert all(memory is not None for memory in memories)
    assert all(lane.inputs.size_bytes and lane.outputs.size_bytes for lane in rig.slot.lanes)
    batches.measure([rig.slot])
    assert [lane.memory for lane in rig.slot.lanes] == memories
    assert rig.blocks.num_leased == 0


def test_no_memory_ahead_is_said_and_no_fault(
    rig: BatchRig, caplog: pytest.LogCaptureFixture
) -> None:
    """The model is served; a batch gets what it needs when it comes."""
    device = rig.device
    assert isinstance(device, SimDevice)
    device.fail_alloc()
    warm(rig, *SIZES).hold(rig.slot)
    assert "m: no memory for batches of 8 rows" in caplog.text


def test_a_dead_device_is_a_fault(rig: BatchRig) -> None:
    """There is nothing to be served any more."""
    device = rig.device
    assert isinstance(device, SimDevice)
    device.fail_device()
    with pytest.raises(DeviceError, match="illegal address"):
        warm(rig, *SIZES).hold(rig.slot)
    device._sticky = None  # so that the rest can be closed


def test_models_that_do_not_batch_have_no_table(rig: BatchRig) -> None:
    """Nothing is held, nothing runs."""
    batches = warm(rig)
    batches.hold(rig.slot)
    assert batches.measure([rig.slot]).table() == []
    assert (batches.max_rows, rig.context.num_bound) == (0, 0)


def test_every_slot_of_a_gpu_runs_every_size(caplog: pytest.LogCaptureFixture) -> None:
    """Each has an engine context of its own to set up; what was left out is said."""
    device = SimDevice()
    rigs = [BatchRig(device, device.open_stream()) for _ in range(2)]
    rigs[0].blocks._budget_bytes = 5 * 4096
    batches = warm(rigs[0], *SIZES)
    with caplog.at_level(logging.INFO):
        batches.measure([rig.slot for rig in rigs])
    for rig in rigs:
        assert {seen[0].size // 5 for seen in rig.context.seen} == {1, 2, 4}
    assert caplog.text.count("m: batches of 8 rows were not tried: there is no staging memory") == 1
    for rig in rigs:
        rig.close()


def test_the_table_is_said_in_one_line() -> None:
    """With units, and with the size that serves the most."""
    table = [(1, 0.0012), (8, 0.0031), (32, 0.0098)]
    assert describe(table) == (
        "1 row 1.2 ms, 8 rows 3.1 ms, 32 rows 9.8 ms: best 3,265 rows/s, at 32 rows"
    )
    assert describe([(1, 0.5)]) == "1 row 500 ms: best 2 rows/s, at 1 row"


@pytest.mark.parametrize(
    ("table", "rows"),
    [
        ([(1, 1.0)], 1),
        ([(1, 1.0), (2, 2.0), (32, 32.0)], 1),  # no faster in batches
        ([(1, 1.0), (2, 1.98), (4, 4.4)], 1),  # as good as no faster
        ([(1, 1.0), (4, 1.5), (8, 3.0), (16, 6.1)], 4),
        ([(1, 1.0), (8, 1.1), (32, 1.4)], 32),
    ],
)
def test_batches_are_no_larger_than_pays(table: list[tuple[int, float]], rows: int) -> None:
    """The smallest size that serves about as many rows per second as any."""
    capacity = Capacity()
    for each, took_s in table:
        capacity.learn(each, took_s)
    spec = served("x FP32[?,4]", "y FP32[?,4]", "max_batch_size: 32").spec
    assert spec.batching is not None
    assert worthwhile_rows(table) == rows
    own = batching_of(spec, capacity, is_asked=False)
    assert own is not None
    assert (own.max_rows, max(own.preferred_rows, default=0) <= rows) == (rows, True)
    assert batching_of(spec, capacity, is_asked=True) is spec.batching
    assert batching_of(spec, Capacity(), is_asked=False) is spec.batching
