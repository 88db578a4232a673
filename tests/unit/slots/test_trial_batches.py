"""What batches take is measured before traffic comes: which sizes, how often, and within bounds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.device.base import Device
from headrace.device.host import HostDevice
from headrace.device.sim import SimDevice
from headrace.engines.base import Binding
from headrace.errors import DeviceError, EngineError
from headrace.slots.capacity import Capacity
from headrace.slots.gather import hold
from headrace.slots.trial_batches import LONG_S, NUM_RUNS, SIZE_S, TrialBatches
from helpers.batch_rig import BatchRig, Mirror, expected

FIXED_S, ROW_S = 0.004, 0.001  # what a run of the virtual device takes, and each row of it
SIZES = (1, 8, 4, 2)


class TimedRig(BatchRig):
    """A unified virtual device on which a run takes time by its rows."""

    def __init__(self) -> None:
        self.sim = SimDevice(is_unified=True)
        self.fixed_s, self.row_s, self.power = FIXED_S, ROW_S, 1.0
        super().__init__(self.sim, self.sim.open_stream())
        self.slot._clock = lambda: self.sim.now
        enqueue = self.context.enqueue

        def timed(binding: Binding) -> None:
            enqueue(binding)
            rows = binding.layout.input_shapes[0][0]
            self.sim.now += self.fixed_s + self.row_s * rows**self.power

        self.context.enqueue = timed  # type: ignore[method-assign]

    def trials(self, *, until: float = 1e9, is_optional: bool = False) -> TrialBatches:
        """All sizes, until some time."""
        layouts = {rows: self.kind.layout(rows) for rows in SIZES}
        clock = lambda: self.sim.now  # noqa: E731
        return TrialBatches(layouts, self.blocks, clock=clock, until=until, is_optional=is_optional)


@pytest.fixture
def rig() -> Iterator[TimedRig]:
    """One slot; no block may be kept."""
    rig = TimedRig()
    yield rig
    assert rig.blocks.num_leased == 0
    rig.close()
    rig.device.close()


def test_the_table_says_what_each_size_takes(rig: TimedRig) -> None:
    """As measured on the clock; a size is run once more than it is measured."""
    capacity = Capacity()
    assert rig.trials().measure(rig.slot, capacity) == {}
    assert [rows for rows, _ in capacity.table()] == sorted(SIZES)
    for rows in SIZES:
        assert capacity.mean_s(rows) == pytest.approx(FIXED_S + ROW_S * rows)
    assert len(rig.context.seen) == len(SIZES) * (1 + NUM_RUNS)
    assert capacity.most_s(8) < 1.5 * capacity.mean_s(8)


def test_what_matters_most_is_measured_before_time_is_up(rig: TimedRig) -> None:
    """In the order that was given; the rest is told, and their durations follow from the others."""
    capacity = Capacity()
    left = rig.trials(until=0.112).measure(rig.slot, capacity)
    assert left == dict.fromkeys((4, 2), "they take too long")
    assert [rows for rows, _ in capacity.table()] == [1, 8]
    assert capacity.mean_s(4) == pytest.approx(FIXED_S + ROW_S * 4)


@pytest.mark.parametrize(("fixed_s", "num_runs"), [(2 * LONG_S, 1), (SIZE_S / 2, 3)])
def test_slow_models_run_less_often(rig: TimedRig, fixed_s: float, num_runs: int) -> None:
    """A load takes seconds, not minutes."""
    rig.fixed_s = fixed_s
    capacity = Capacity()
    rig.trials().measure(rig.slot, capacity)
    assert len(rig.context.seen) == len(SIZES) * num_runs
    assert capacity.mean_s(1) == pytest.approx(fixed_s + ROW_S)


def test_what_would_take_too_long_is_not_tried(rig: TimedRig) -> None:
    """By what one row took: 256 rows of a slow model would hold a load up for half a minute."""
    rig.fixed_s, rig.row_s = 0.0, 0.1
    capacity = Capacity()
    assert rig.trials(until=1.7).measure(rig.slot, capacity) == {8: "they take too long"}
    assert rig.sim.now < 1.7
    assert [rows for rows, _ in capacity.table()] == [1, 2, 4]


@pytest.mark.parametrize(
    ("fixed_s", "row_s", "power", "tried"),
    [
        (0.004, 0.001, 1.0, [1, 2, 4, 8]),  # the more rows the better
        (0.0, 0.001, 1.0, [1, 2, 4, 8]),  # all alike: none is known to be worse
        (0.0, 0.001, 1.5, [1, 2]),  # each row takes longer the more there are
        (0.002, 0.001, 2.0, [1, 2, 4]),
        (0.0, 0.00001, 1.5, [1, 2, 4, 8]),  # it costs next to nothing
    ],
)
def test_batches_that_nobody_asked_for_are_tried_while_they_pay(
    rig: TimedRig, fixed_s: float, row_s: float, power: float, tried: list[int]
) -> None:
    """Upwards, up to the first that serves clearly fewer rows a second than a smaller one."""
    rig.fixed_s, rig.row_s, rig.power = fixed_s, row_s, power
    capacity = Capacity()
    assert rig.trials(is_optional=True).measure(rig.slot, capacity) == {}
    assert [rows for rows, _ in capacity.table()] == tried
    assert [seen[0].size // 5 for seen in rig.context.seen[:: 1 + NUM_RUNS]] == tried


def test_more_rows_than_there_are_blocks_for_are_left_out(rig: TimedRig) -> None:
    """Such a batch will never be."""
    rig.blocks._budget_bytes = 5 * 4096
    left = rig.trials().measure(rig.slot, Capacity())
    assert left == {8: "there is no staging memory for so many requests"}


def test_a_refusal_leaves_the_slot_usable(rig: TimedRig) -> None:
    """A model may refuse zeros and yet serve real data."""
    rig.context.error = EngineError("zeros are refused")
    assert rig.trials().run_once(rig.slot, Capacity()) == {SIZES[0]: "zeros are refused"}
    batch = rig.batch(1, 2)
    assert rig.run(batch) == expected(batch)
    rig.release(batch)


def test_other_slots_run_each_size_once(rig: TimedRig) -> None:
    """That is enough for what an engine sets up on its first run of a shape."""
    assert rig.trials().run_once(rig.slot, Capacity()) == {}
    assert [seen[0].size // 5 for seen in rig.context.seen] == list(SIZES)


@pytest.mark.parametrize("device", [HostDevice(), SimDevice()], ids=["unified", "gpu"])
def test_memory_that_is_held_for_the_largest_batch_does_not_move(device: Device) -> None:
    """Whatever comes then is bound into it, and none is allocated any more."""
    rig = BatchRig(device, device.open_stream())
    lane = rig.slot.lanes[0]
    hold(lane, rig.kind.layout(32), 32)
    sizes = (lane.inputs.size_bytes, lane.outputs.size_bytes)
    pointers = (lane.inputs.ptr, lane.outputs.ptr)
    assert min(sizes) > 0
    for rows in ((1,) * 32, (3, 4), (16, 15)):
        batch = rig.batch(*rows)
        assert rig.run(batch) == expected(batch)
        rig.release(batch)
    assert (lane.inputs.ptr, lane.outputs.ptr) == pointers
    assert (lane.inputs.size_bytes, lane.outputs.size_bytes) == sizes
    assert isinstance(rig.context, Mirror)
    rig.close()
    device.close()


def test_a_dead_device_ends_the_load() -> None:
    """It is no fault of the batch."""
    device = SimDevice()
    rig = BatchRig(device, device.open_stream())
    layouts = {rows: rig.kind.layout(rows) for rows in SIZES}
    trials = TrialBatches(layouts, rig.blocks, clock=lambda: 0.0, until=1.0)
    device.fail_device(device.now)
    with pytest.raises(DeviceError, match="illegal address"):
        trials.run_once(rig.slot, Capacity())
