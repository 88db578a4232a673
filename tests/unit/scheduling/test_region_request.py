"""Requests whose tensors lie in regions, through the real core on the virtual device."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.errors import AbandonedError, DeviceError, NotFoundError, RequestError
from headrace.regions.part import RegionPart
from headrace.scheduling import region_request
from headrace.scheduling.region_request import RegionRequest
from helpers.core_rig import Rig
from helpers.region_rig import IN, OUT, SIZE, RegionRig
from helpers.shared_files import SharedFiles, is_open


class Shared(RegionRig):
    """A file of two regions, and requests that go from the one into the other."""

    def __init__(self, folder: Path, *, is_direct: bool = False, **rig: int) -> None:
        core = Rig(num_slots=1, **rig)  # type: ignore[arg-type]
        self.files = SharedFiles(folder)
        self.path = self.files.make("memory", bytes(2 * SIZE))
        super().__init__(core, self.files.table(core.device if is_direct else None))
        self.register()

    def register(self) -> None:
        self.table.register("in", "memory", 0, SIZE, 0)
        self.table.register("out", "memory", SIZE, SIZE, 0)

    def fill(self, value: int) -> None:
        with self.path.open("r+b") as file:
            file.write(bytes([value]) * SIZE)

    @property
    def written(self) -> set[int]:
        """What stands in the output's region."""
        return set(self.path.read_bytes()[SIZE:])

    @property
    def num_uses(self) -> int:
        return sum(region.num_uses for region in self.table.listed(""))

    @property
    def num_pinned(self) -> int:
        return self.num_held("pinned")

    def close(self) -> None:
        self.table.close()
        self.rig.close()
        assert self.table.num_regions == 0
        assert not any(is_open(file) for file in self.files.opened)


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Shared]:
    made = Shared(tmp_path)
    yield made
    made.close()


def test_from_one_region_into_the_other(shared: Shared) -> None:
    """One copy each way, counted; what the client does to its memory meanwhile changes nothing."""
    shared.fill(7)
    shared.submit()
    assert shared.num_uses == 2
    shared.fill(9)
    shared.rig.run()
    assert shared.ends == [bytes([8]) * SIZE]
    assert shared.written == {8}
    assert (shared.num_uses, shared.table.num_read_bytes) == (0, SIZE)
    assert shared.table.num_written_bytes == SIZE


def test_one_way_alone(shared: Shared) -> None:
    """The other one is the message's."""
    shared.fill(1)
    shared.submit(IN, None)
    shared.rig.run()
    shared.submit(bytes([4]) * 100, RegionPart("out", 0, 100))
    shared.rig.run()
    assert shared.ends == [bytes([2]) * SIZE, bytes([5]) * 100]
    assert shared.path.read_bytes()[SIZE : SIZE + 101] == bytes([5]) * 100 + b"\0"


def test_unregistered_in_flight_it_ends_as_if_it_were_not(shared: Shared) -> None:
    """The region goes after the last use; one of the same name is another."""
    shared.fill(3)
    shared.submit()
    shared.table.unregister("")
    other = shared.files.make("other", bytes(SIZE))
    shared.table.register("out", "other", 0, SIZE, 0)
    assert shared.table.num_regions == 3
    shared.rig.run()
    assert (shared.written, set(other.read_bytes())) == ({4}, {0})
    assert shared.table.num_regions == 1


def test_cut_short_before_it_is_read(shared: Shared) -> None:
    """Refused; its block goes back, and the next request is served."""
    os.truncate(shared.path, 100)
    with pytest.raises(RequestError, match="'in': its memory has become shorter"):
        shared.submit()
    assert (shared.rig.blocks.num_leased, shared.num_uses, shared.ends) == (0, 0, [])
    os.truncate(shared.path, 2 * SIZE)
    shared.submit()
    shared.rig.run()
    assert shared.written == {1}


def test_cut_short_while_it_runs(shared: Shared) -> None:
    """It ends with an error instead of its reply, and the file does not grow."""
    shared.submit()
    os.truncate(shared.path, SIZE + 10)
    shared.rig.run()
    (error,) = shared.ends
    assert isinstance(error, RequestError)
    assert "'out': its memory has become shorter" in str(error)
    assert (shared.path.stat().st_size, shared.num_uses) == (SIZE + 10, 0)


def test_cut_short_while_it_waits_for_a_block(tmp_path: Path) -> None:
    """Told when its turn comes, without holding up those behind it."""
    shared = Shared(tmp_path, budget_bytes=12_288)
    shared.submit()
    shared.submit()
    shared.submit(b"a" * SIZE, None)
    os.truncate(shared.path, 0)
    shared.rig.run()
    assert sorted(type(end).__name__ for end in shared.ends) == [*["RequestError"] * 2, "bytes"]
    assert shared.rig.blocks.num_leased == 0
    shared.close()


def test_a_caller_that_has_left_gets_nothing_written(shared: Shared) -> None:
    """Its memory may be another's by then."""
    shared.fill(5)
    request = shared.submit()
    shared.rig.step()
    shared.rig.scheduler.cancel(request)
    shared.rig.run()
    assert [type(end) for end in shared.ends] == [AbandonedError]
    assert (shared.written, shared.num_uses) == ({0}, 0)


@pytest.mark.parametrize(
    ("source", "wanted", "kind"),
    [
        (RegionPart("no", 0, SIZE), OUT, NotFoundError),
        (RegionPart("in", 1, SIZE), OUT, RequestError),
        (IN, RegionPart("out", 1, SIZE), RequestError),
        (IN, RegionPart("out", 0, SIZE - 1), RequestError),
        (IN, RegionPart("no", 0, SIZE), NotFoundError),
    ],
)
def test_what_does_not_fit_is_refused_before_it_costs_anything(
    shared: Shared, source: RegionPart, wanted: RegionPart, kind: type[Exception]
) -> None:
    """An output that is known to be too large, too."""
    with pytest.raises(kind):
        shared.request(source, wanted)
    assert shared.num_uses == 0


@pytest.fixture
def direct(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shared]:
    """Regions that are pinned, and no tensor too small to go directly."""
    monkeypatch.setattr(region_request, "GATHER_BELOW_BYTES", 0)
    made = Shared(tmp_path, is_direct=True)
    yield made
    made.close()


def test_the_device_copies_from_the_one_into_the_other(direct: Shared) -> None:
    """No byte goes through the host; it is there when the reply is."""
    direct.fill(7)
    direct.submit()
    direct.rig.run()
    assert direct.written == {8}
    assert [len(end) for end in direct.ends if isinstance(end, bytes)] == [SIZE]
    table = direct.table
    assert (table.num_read_bytes, table.num_written_bytes) == (0, 0)
    assert (table.num_direct_bytes, direct.num_uses) == (2 * SIZE, 0)


def test_small_tensors_are_copied_by_the_host(tmp_path: Path) -> None:
    """A copy of its own would cost the device more."""
    shared = Shared(tmp_path, is_direct=True)
    shared.submit()
    shared.rig.run()
    assert (shared.written, shared.table.num_direct_bytes) == ({1}, 0)
    assert shared.table.num_read_bytes == shared.table.num_written_bytes == SIZE
    shared.close()


def test_one_way_directly(direct: Shared) -> None:
    """The other by the message."""
    direct.fill(1)
    direct.submit(IN, None)
    direct.rig.run()
    direct.submit(bytes([4]) * SIZE, OUT)
    direct.rig.run()
    assert direct.ends[0] == bytes([2]) * SIZE
    assert direct.written == {5}


def test_pinned_until_the_event_that_covers_the_last_use(direct: Shared) -> None:
    """Whatever is unregistered, cancelled and looked through meanwhile."""
    direct.fill(3)
    direct.submit()
    cancelled = direct.submit()
    direct.rig.step()
    direct.table.unregister("")
    direct.rig.scheduler.cancel(cancelled)
    while direct.rig.device.step():
        direct.table.sweep(0)
        assert direct.num_pinned == 2
    direct.rig.run()
    assert direct.written == {4}
    assert direct.num_pinned == 2
    direct.table.sweep(0)
    assert (direct.num_pinned, direct.table.num_regions) == (0, 0)


def test_cut_short_when_the_device_has_copied(direct: Shared) -> None:
    """Nobody will see what was written: it ends with an error.

    While it copies, a GPU goes on with pages that are pinned. The virtual one, which is the CPU,
    would touch pages that are gone.
    """
    direct.submit()
    direct.rig.step()
    direct.rig.device.run_until_idle()
    os.truncate(direct.path, SIZE + 10)
    direct.rig.run()
    (error,) = direct.ends
    assert isinstance(error, RequestError)
    with pytest.raises(RequestError, match="'out': its memory has become shorter"):
        direct.submit()
    assert (direct.num_uses, direct.rig.blocks.num_leased) == (0, 0)


def test_a_device_that_has_failed_keeps_what_it_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may write there at any time, as into blocks."""
    monkeypatch.setattr(region_request, "GATHER_BELOW_BYTES", 0)
    shared = Shared(tmp_path, is_direct=True)
    shared.submit()
    shared.rig.step()
    shared.rig.device.fail_device()
    shared.rig.run()
    assert [type(end) for end in shared.ends] == [DeviceError]
    shared.table.close()
    assert shared.num_pinned == 2


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(st.lists(st.sampled_from(("ask", "step", "cancel", "drop", "cut", "mend")), max_size=25))
def test_whatever_happens_each_ends_once_and_nothing_stays_held(
    tmp_path: Path, steps: list[str]
) -> None:
    """Regions are replaced, files cut and requests cancelled at any moment."""
    play(Shared(tmp_path, budget_bytes=24_576), steps)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(st.lists(st.sampled_from(("ask", "step", "cancel", "drop")), max_size=25))
def test_whatever_happens_the_device_copies_within_what_is_pinned(
    tmp_path: Path, steps: list[str]
) -> None:
    """Regions are replaced and requests cancelled at any moment; the virtual device watches."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(region_request, "GATHER_BELOW_BYTES", 0)
        play(Shared(tmp_path, is_direct=True, budget_bytes=24_576), steps)


def play(shared: Shared, steps: list[str]) -> None:
    """Do what the steps say, let everything end, and look at what is left."""
    asked: list[RegionRequest] = []
    for step in steps:
        if step == "ask":
            try:
                asked.append(shared.submit())
            except RequestError:
                continue
        elif step == "step":
            shared.rig.step()
            shared.rig.device.step()
        elif step == "cancel" and asked and asked[-1].state.value != "ended":
            shared.rig.scheduler.cancel(asked[-1])
        elif step == "drop":
            shared.table.unregister("")
            shared.table.sweep(0)
            os.truncate(shared.path, 2 * SIZE)
            shared.register()
        elif step in ("cut", "mend"):
            os.truncate(shared.path, SIZE // 2 if step == "cut" else 2 * SIZE)
    shared.rig.run()
    shared.table.sweep(0)
    assert len(shared.ends) == len(asked)
    assert (shared.num_uses, shared.table.num_regions) == (0, 2)
    assert shared.rig.blocks.num_leased == 0
    shared.close()
