"""Requests whose tensors lie in device memory of clients, through the real core."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NoReturn

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.engines.layout import plan_layout
from headrace.errors import AbandonedError, DeviceError, NotFoundError, RequestError
from headrace.regions.part import RegionPart
from headrace.regions.table import Quota, RegionTable
from headrace.scheduling.region_request import RegionRequest
from helpers.core_rig import Rig
from helpers.region_rig import IN, OUT, SIZE, RegionRig


def no_file(key: str) -> NoReturn:
    raise AssertionError(key)


class Shared(RegionRig):
    """Memory of another process for inputs and for outputs, and requests between them."""

    def __init__(self, **rig: int) -> None:
        core = Rig(num_slots=1, **rig)  # type: ignore[arg-type]
        super().__init__(core, RegionTable(no_file, Quota(), core.device))
        self.source, self.target = (core.device.share_memory(SIZE + 100) for _ in range(2))
        self.target.array[:] = 0
        self.source.array[:] = 0
        self.register()

    def register(self) -> None:
        self.table.register_shared("in", self.source.handle, SIZE, 0)
        self.table.register_shared("out", self.target.handle, SIZE, 0)

    @property
    def written(self) -> set[int]:
        """What stands in the output's region."""
        return set(self.target.array[:SIZE].tolist())

    @property
    def num_open(self) -> int:
        return self.num_held("shared")

    @property
    def num_uses(self) -> int:
        return sum(region.num_uses for region in self.table.listed("", on_device=True))

    def close(self) -> None:
        self.table.close()
        self.rig.close()
        assert (self.table.num_regions, self.num_open) == (0, 0)


@pytest.fixture
def shared() -> Iterator[Shared]:
    made = Shared()
    yield made
    made.close()


@pytest.mark.parametrize("size", [SIZE, 4, 1, 0])
def test_the_device_copies_whatever_the_size(shared: Shared, size: int) -> None:
    """From the one into the other, and no byte beside it."""
    shared.source.array[:] = 7
    shared.submit(RegionPart("in", SIZE - size, size), RegionPart("out", SIZE - size, size))
    assert shared.num_uses == 2
    shared.rig.run()
    assert [len(end) for end in shared.ends if isinstance(end, bytes)] == [size]
    assert shared.target.array.tolist() == [0] * (SIZE - size) + [8] * size + [0] * 100
    table = shared.table
    assert (table.num_read_bytes, table.num_written_bytes) == (0, 0)
    assert (table.num_direct_bytes, shared.num_uses) == (2 * size, 0)


def test_one_way_alone(shared: Shared) -> None:
    """The other one is the message's."""
    shared.source.array[:] = 1
    shared.submit(IN, None)
    shared.rig.run()
    shared.submit(bytes([4]) * 100, RegionPart("out", 10, 100))
    shared.rig.run()
    assert shared.ends[0] == bytes([2]) * SIZE
    assert shared.target.array[:111].tolist() == [0] * 10 + [5] * 100 + [0]
    assert shared.table.num_direct_bytes == SIZE + 100


def test_an_output_may_be_less_than_its_room(shared: Shared) -> None:
    """As in other regions; one that is more is refused before it costs anything."""
    shared.submit(RegionPart("in", 0, 8), OUT)
    shared.rig.run()
    assert shared.target.array[:9].tolist() == [1] * 8 + [0]
    with pytest.raises(RequestError, match="9 bytes does not fit into the 8 bytes"):
        shared.request(RegionPart("in", 0, 9), RegionPart("out", 0, 8))
    assert shared.num_uses == 0


@pytest.mark.parametrize(
    ("source", "wanted", "kind"),
    [
        (RegionPart("no", 0, SIZE), OUT, NotFoundError),
        (RegionPart("in", 1, SIZE), OUT, RequestError),
        (RegionPart("in", 2**63 - 1, SIZE), OUT, RequestError),
        (IN, RegionPart("out", 1, SIZE), RequestError),
        (IN, RegionPart("out", 2**63 - 1, 2**63 - 1), RequestError),
    ],
)
def test_what_lies_elsewhere_is_refused(
    shared: Shared, source: RegionPart, wanted: RegionPart, kind: type[Exception]
) -> None:
    """Though the memory goes on behind the region."""
    with pytest.raises(kind):
        shared.request(source, wanted)
    assert shared.num_uses == 0


def test_an_output_of_a_size_that_only_the_run_tells_is_refused(shared: Shared) -> None:
    """Before anything is done; it may be asked for in the message."""
    known = shared.rig.layout(SIZE)
    layout = plan_layout(known.input_shapes, known.input_sizes, None, ())
    with pytest.raises(RequestError, match="'out', which lies in a GPU's memory.*in the message"):
        shared.request(IN, OUT, layout=layout)
    assert shared.num_uses == 0
    shared.request(IN, None, layout=layout).let_go()


def test_what_is_handed_over_to_the_steps_of_an_ensemble_is_refused(shared: Shared) -> None:
    """They take it from the host; nothing stays held."""
    request = shared.request(IN, None)
    with pytest.raises(RequestError, match="region 'in': it lies in a GPU's memory"):
        request.hand_over()
    request.let_go()
    assert shared.num_uses == 0


def test_open_until_the_event_that_covers_the_last_use(shared: Shared) -> None:
    """Whatever is unregistered, cancelled and looked through meanwhile."""
    shared.source.array[:] = 3
    shared.submit()
    cancelled = shared.submit()
    shared.rig.step()
    shared.table.unregister("", on_device=True)
    shared.rig.scheduler.cancel(cancelled)
    while shared.rig.device.step():
        shared.table.sweep(0)
        assert shared.num_open == 2
    shared.rig.run()
    assert (shared.written, shared.num_open) == ({4}, 2)
    shared.table.sweep(0)
    assert (shared.num_open, shared.table.num_regions) == (0, 0)
    assert sorted(type(end).__name__ for end in shared.ends) == ["AbandonedError", "bytes"]


def test_what_is_unregistered_and_registered_anew_in_flight(shared: Shared) -> None:
    """A request writes into the region that it was given, not into its namesake."""
    shared.submit()
    shared.rig.step()
    shared.table.unregister("out", on_device=True)
    other = shared.rig.device.share_memory(SIZE)
    shared.table.register_shared("out", other.handle, SIZE, 0)
    untouched = other.array.copy()
    shared.rig.run()
    assert shared.written == {1}
    assert np.array_equal(other.array, untouched)


def test_a_process_that_ends_in_flight_changes_nothing(shared: Shared) -> None:
    """What is open stays."""
    shared.submit()
    shared.rig.step()
    shared.source.is_alive = shared.target.is_alive = False
    shared.rig.run()
    shared.submit()
    shared.rig.run()
    assert [type(end) for end in shared.ends] == [bytes, bytes]


def test_a_caller_that_leaves_before_the_device_began_gets_nothing_written(shared: Shared) -> None:
    """Its memory may be another's by then."""
    request = shared.submit()
    shared.rig.scheduler.cancel(request)
    shared.rig.run()
    assert [type(end) for end in shared.ends] == [AbandonedError]
    assert (shared.written, shared.num_uses) == ({0}, 0)


def test_a_device_that_has_failed_keeps_what_it_was_given() -> None:
    """It may write there at any time, as into blocks."""
    shared = Shared()
    shared.submit()
    shared.rig.step()
    shared.rig.device.fail_device()
    shared.rig.run()
    assert [type(end) for end in shared.ends] == [DeviceError]
    shared.table.close()
    assert shared.num_open == 2


def test_memory_that_is_closed_too_early_is_found_out(shared: Shared) -> None:
    """By the virtual device: the tests above can fail."""
    shared.submit()
    shared.rig.step()
    region = shared.table.listed("in", on_device=True)[0]
    assert region.pin is not None
    region.pin.close()
    with pytest.raises(AssertionError):
        shared.rig.device.run_until_idle()
    shared.rig.run()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(("ask", "step", "cancel", "drop", "end")),
            st.sampled_from((SIZE, 3, 0)),
        ),
        max_size=25,
    )
)
def test_whatever_happens_each_ends_once_and_nothing_stays_held(
    steps: list[tuple[str, int]],
) -> None:
    """Regions are replaced, processes end, requests are cancelled; the virtual device watches."""
    shared, asked = Shared(budget_bytes=24_576), list[RegionRequest]()
    for step, size in steps:
        if step == "ask":
            asked.append(shared.submit(RegionPart("in", 0, size), OUT))
        elif step == "step":
            shared.rig.step()
            shared.rig.device.step()
        elif step == "cancel" and asked and asked[-1].state.value != "ended":
            shared.rig.scheduler.cancel(asked[-1])
        elif step == "drop":
            shared.table.unregister("", on_device=True)
            shared.table.sweep(0)
            shared.register()
        elif step == "end":
            shared.source.is_alive = shared.target.is_alive = False
            shared.source, shared.target = (shared.rig.device.share_memory(SIZE) for _ in range(2))
    shared.rig.run()
    shared.table.sweep(0)
    assert len(shared.ends) == len(asked)
    assert (shared.num_uses, shared.table.num_regions, shared.num_open) == (0, 2, 2)
    assert shared.rig.blocks.num_leased == 0
    shared.close()
