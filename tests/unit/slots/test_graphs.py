"""CUDA graphs of lanes on the virtual device: when they are captured, used, given up."""

from __future__ import annotations

import pytest

from headrace.errors import DeviceError, EngineError
from headrace.slots.graphs import MAX_PER_LANE, MAX_REFUSALS, PLAIN_RUNS, GraphTally, LaneGraphs
from helpers.core_rig import AddOneContext, Asked, Rig


class GraphRig(Rig):
    """One slot whose lanes use graphs."""

    def __init__(self) -> None:
        super().__init__(num_slots=1)
        self.tally = GraphTally()
        self.slots[0].use_graphs(self.tally)

    def ask(self, size: int, times: int = 1) -> list[Asked]:
        """Serve payloads of one size, one after the other."""
        asked = []
        for number in range(times):
            asked.append(self.submit(bytes([number % 256]) * size))
            self.run()
        return asked

    @property
    def graphs(self) -> LaneGraphs:
        """The first lane's; it takes every request that finds the slot idle."""
        graphs = self.slots[0].lanes[0].graphs
        assert graphs is not None
        return graphs

    def misses(self) -> dict[str, int]:
        """The reasons that were counted."""
        return {str(reason): n for reason, n in self.tally.num_misses.items() if n}


def test_a_layout_is_captured_after_plain_runs() -> None:
    """The first runs are plain, all later ones replay, and every answer is its own."""
    rig = GraphRig()
    asked = rig.ask(100, times=PLAIN_RUNS + 5)
    assert all(each.is_right for each in asked)
    assert rig.misses() == {"new": PLAIN_RUNS}
    assert (rig.tally.num_hits, rig.tally.num_captured) == (5, 1)
    rig.close()


def test_nothing_is_captured_while_the_stream_has_work() -> None:
    """With a lane in flight the other one runs plainly, and is captured later."""
    rig = GraphRig()
    rig.ask(100, times=PLAIN_RUNS + 1)
    for _ in range(PLAIN_RUNS + 1):
        for _ in range(2):
            rig.submit(b"x" * 100)
        rig.run()
    assert rig.misses() == {"new": 2 * PLAIN_RUNS, "busy": 1}
    assert rig.tally.num_captured == 1
    assert all(asked.is_right for asked in rig.asked)
    rig.close()


def test_another_layout_in_between_delays_the_capture() -> None:
    """The context must be set up for the layout, or its set-up would be part of the capture."""
    rig = GraphRig()
    rig.ask(200, times=PLAIN_RUNS)
    rig.ask(100)
    rig.ask(200)
    assert rig.misses() == {"new": PLAIN_RUNS + 1, "cold": 1}
    rig.ask(200)
    assert (rig.tally.num_hits, rig.tally.num_captured) == (1, 1)
    assert all(asked.is_right for asked in rig.asked)
    rig.close()


@pytest.mark.parametrize(
    "error", [EngineError("not capturable"), DeviceError("invalidated", code=901)]
)
def test_a_refused_capture_falls_back(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    """The batch runs plainly, all later ones too, and the log says why once."""
    rig = GraphRig()
    rig.device.fail_capture(error)
    asked = rig.ask(100, times=PLAIN_RUNS + 4)
    assert all(each.is_right for each in asked)
    assert rig.misses() == {"new": PLAIN_RUNS, "refused": 4}
    assert (rig.tally.num_hits, rig.tally.num_captured) == (0, 0)
    assert [str(error) in record.getMessage() for record in caplog.records] == [True]
    rig.close()


def test_an_engine_that_cannot_be_captured_is_left_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """After some failures on end no shape is tried any more, and the log stays short."""
    rig = GraphRig()
    rig.ask(10_000)
    for number in range(3 * MAX_REFUSALS):
        rig.device.fail_capture(EngineError("not capturable"))
        rig.ask(number + 1, times=PLAIN_RUNS + 2)
    assert rig.tally.num_refusals == MAX_REFUSALS
    assert len(caplog.records) == MAX_REFUSALS + 1
    assert "no more CUDA graphs are tried" in caplog.text
    assert all(asked.is_right for asked in rig.asked)
    rig.close()


def test_failures_that_do_not_come_on_end_are_forgiven() -> None:
    """A capture that succeeds starts the count anew."""
    rig = GraphRig()
    rig.ask(10_000)
    for number in range(2 * MAX_REFUSALS):
        if number % 2:
            rig.device.fail_capture(EngineError("not now"))
        rig.ask(number + 1, times=PLAIN_RUNS + 1)
    assert rig.tally.num_captured == MAX_REFUSALS
    rig.close()


def test_a_dead_device_in_a_capture_is_the_requests_error() -> None:
    """A sticky error is not taken for a capture that is merely refused."""
    rig = GraphRig()
    rig.ask(100, times=PLAIN_RUNS)
    rig.device.fail_capture(DeviceError("dead", code=700, sticky=True))
    (asked,) = rig.ask(100)
    assert [str(error) for error in asked.errors] == ["dead"]
    rig.close()


def test_graphs_go_with_the_memory_of_their_lane() -> None:
    """A larger layout moves the lane's memory; the smaller one is captured anew there."""
    rig = GraphRig()
    rig.ask(100, times=PLAIN_RUNS + 2)
    rig.ask(50_000)
    assert rig.tally.num_captured == 0
    asked = rig.ask(100, times=PLAIN_RUNS + 2)
    assert rig.tally.num_captured == 1
    assert all(each.is_right for each in asked)
    rig.close()


def test_the_graph_launched_longest_ago_makes_room() -> None:
    """There is a bound, and a layout in use outlives those that are not."""
    rig = GraphRig()
    rig.ask(10_000)  # the memory does not move any more
    for size in range(1, MAX_PER_LANE + 1):
        rig.ask(size, times=PLAIN_RUNS + 1)
    rig.ask(1)
    rig.ask(100, times=PLAIN_RUNS + 1)
    assert rig.tally.num_captured == MAX_PER_LANE
    layouts = [rig.layout(size) for size in (1, 2, 100)]
    bindings = [rig.slots[0].lanes[0].binding_for(layout) for layout in layouts]
    assert [rig.graphs.has(binding) for binding in bindings] == [True, False, True]
    rig.close()


def test_each_eviction_makes_the_next_capture_rarer() -> None:
    """More shapes than there is room for end in plain runs, not in a capture each."""
    rig = GraphRig()
    rig.ask(10_000)
    for _ in range(12):
        for size in range(1, 2 * MAX_PER_LANE):
            rig.ask(size, times=PLAIN_RUNS + 1)
    num_runs = len(rig.asked)
    assert rig.tally.num_captured <= MAX_PER_LANE
    assert sum(rig.tally.num_misses.values()) + rig.tally.num_hits == num_runs
    assert rig.graphs.num_evicted < 12
    assert all(asked.is_right for asked in rig.asked)
    rig.close()


def test_values_on_the_host_forbid_a_graph() -> None:
    """They are read at each enqueue, so a replay would use those of its capture."""
    rig = GraphRig()
    context = rig.slots[0].context
    assert isinstance(context, AddOneContext)
    bind = context.bind

    def bind_host(*args: object) -> object:
        binding = bind(*args)  # type: ignore[arg-type]
        binding.reads_host = True
        return binding

    context.bind = bind_host  # type: ignore[method-assign, assignment]
    rig.ask(100, times=PLAIN_RUNS + 3)
    assert rig.misses() == {"host": PLAIN_RUNS + 3}
    rig.close()


def test_a_stream_without_graphs_runs_as_ever() -> None:
    """To ask for graphs where there are none changes nothing."""
    rig = GraphRig()
    slot = rig.slots[0]
    stream = slot._stream
    for lane in slot.lanes:
        lane.graphs = None

    class Plain:
        """A stream that cannot be captured."""

        capture = None

        def __getattr__(self, name: str) -> object:
            return getattr(stream, name)

    slot._stream = Plain()  # type: ignore[assignment]
    slot.use_graphs(rig.tally)
    asked = rig.ask(100, times=5)
    assert all(each.is_right for each in asked)
    assert rig.tally.num_hits == 0
    rig.close()
