"""Regions: bounds, quota, use, and when they go."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.device.base import DevicePtr
from headrace.errors import DeviceError, ExistsError, NotFoundError, RequestError, TooLargeError
from headrace.regions.file import RegionFile
from headrace.regions.part import RegionPart
from headrace.regions.table import MAX_NAME_CHARS, Quota, RegionTable
from helpers.shared_files import SharedFiles, is_open

SECRET = "key-that-nobody-may-see"


@pytest.fixture
def files(tmp_path: Path) -> SharedFiles:
    made = SharedFiles(tmp_path)
    made.make(SECRET, bytes(range(200)))
    return made


@pytest.fixture
def table(files: SharedFiles) -> RegionTable:
    return files.table(lease_s=60)


def names(table: RegionTable) -> list[str]:
    return [region.name for region in table.listed("")]


def test_a_region_is_a_piece_of_a_file(files: SharedFiles, table: RegionTable) -> None:
    """What requests read and write stands behind its offset."""
    table.register("r", f"/{SECRET}", 10, 100, 0)
    (region,) = table.hold([RegionPart("r", 5, 95)], 0)
    room = bytearray(95)
    region.read_into(memoryview(room), 5)
    assert room == bytes(range(15, 110))
    region.write(b"abc", 97)
    table.release([region], num_read_bytes=95, num_written_bytes=3)
    assert (files.folder / SECRET).read_bytes()[107:110] == b"abc"
    assert (table.num_read_bytes, table.num_written_bytes) == (95, 3)
    assert (table.num_regions, table.num_bytes) == (1, 100)


@pytest.mark.parametrize(
    ("offset", "size"),
    [(0, 201), (200, 1), (199, 2), (2**64 - 1, 1), (1, 2**64 - 1), (2**63, 2**63), (0, 0)],
)
def test_a_region_lies_within_its_file(
    files: SharedFiles, table: RegionTable, offset: int, size: int
) -> None:
    """Also where sums of 64 bits would wrap; nothing stays open."""
    table = files.table(max_bytes=1 << 70)
    with pytest.raises(RequestError, match="'r'"):
        table.register("r", SECRET, offset, size, 0)
    assert (table.num_regions, table.num_bytes, names(table)) == (0, 0, [])
    assert not any(is_open(file) for file in files.opened)


@pytest.mark.parametrize(
    ("offset", "size"), [(0, 101), (100, 1), (99, 2), (2**63 - 1, 2**63 - 1), (2**62, 0)]
)
def test_a_part_lies_within_its_region(table: RegionTable, offset: int, size: int) -> None:
    """Though the file goes on behind it; a request that is refused holds nothing."""
    table.register("r", SECRET, 10, 100, 0)
    with pytest.raises(RequestError, match=r"do not lie within shared memory region 'r'.*has 100"):
        table.hold([RegionPart("r", 0, 100), RegionPart("r", offset, size)], 0)
    assert [region.num_uses for region in table.listed("")] == [0]


def test_names_are_taken_once(table: RegionTable) -> None:
    """And free again after they were unregistered, with another piece."""
    table.register("r", SECRET, 0, 10, 0)
    with pytest.raises(ExistsError, match="'r' is registered already"):
        table.register("r", SECRET, 0, 20, 0)
    table.unregister("r")
    table.register("r", SECRET, 0, 20, 0)
    assert [region.size_bytes for region in table.listed("r")] == [20]


def test_unknown_names(table: RegionTable) -> None:
    """Unregistered without an error, as in Triton; no request can use them."""
    table.unregister("nothing")
    table.unregister("")
    with pytest.raises(NotFoundError, match="'x' is not registered"):
        table.listed("x")
    with pytest.raises(NotFoundError, match="'x' is not registered"):
        table.hold([RegionPart("x", 0, 0)], 0)


@pytest.mark.parametrize("name", ["", "n" * (MAX_NAME_CHARS + 1)])
def test_a_name_has_a_length(table: RegionTable, name: str) -> None:
    """No name means all of them to the other calls."""
    with pytest.raises(RequestError, match="has 1 to 256 characters"):
        table.register(name, SECRET, 0, 1, 0)


def test_a_region_in_use_goes_after_its_last_use(files: SharedFiles, table: RegionTable) -> None:
    """Its name is free at once, its room is not."""
    table.register("r", SECRET, 0, 100, 0)
    parts = [RegionPart("r", 0, 1)]
    first, second = table.hold(parts, 0), table.hold(parts, 0)
    table.unregister("")
    with pytest.raises(NotFoundError):
        table.hold(parts, 0)
    table.register("r", SECRET, 0, 50, 0)
    assert (table.num_regions, table.num_bytes) == (2, 150)
    table.release(first)
    first[0].read_into(memoryview(bytearray(100)), 0)
    table.release(second)
    assert (table.num_regions, table.num_bytes) == (1, 50)
    table.close()
    assert table.num_regions == 0
    assert not any(is_open(file) for file in files.opened)


def test_whoever_lets_go_is_told_after_the_last_use(files: SharedFiles) -> None:
    """Not before, and not by what is registered still; a file is closed by nobody else."""
    told: list[bool] = []
    table = RegionTable(files.open, Quota(), on_unused=lambda: told.append(True))
    table.register("r", SECRET, 0, 100, 0)
    parts = [RegionPart("r", 0, 1)]
    table.release(table.hold(parts, 0))
    first, second = table.hold(parts, 0), table.hold(parts, 0)
    table.unregister("r")
    table.release(first)
    assert told == []
    table.release(second)
    assert (told, is_open(files.opened[0])) == ([True], True)
    table.let_go()
    assert (table.num_regions, is_open(files.opened[0])) == (0, False)


def test_what_cannot_be_closed_takes_no_room(
    files: SharedFiles, table: RegionTable, caplog: pytest.LogCaptureFixture
) -> None:
    """Nor does it keep others open."""
    for name in "ab":
        table.register(name, SECRET, 0, 10, 0)
    (region, _) = table.listed("")
    region.pin = Unwilling()
    table.unregister("")
    assert (table.num_regions, table.num_bytes) == (0, 0)
    assert "region 'a' could not be closed" in caplog.text
    assert not any(is_open(file) for file in files.opened)


class Unwilling:
    """A pin that the device keeps."""

    ptr, size_bytes = DevicePtr(0), 10

    def close(self) -> None:
        raise DeviceError("no")


def test_the_quota_counts_regions_and_bytes(files: SharedFiles) -> None:
    """The text names what is registered and whom to ask, and no key."""
    table = files.table(max_regions=2, max_bytes=150)
    table.register("a", SECRET, 0, 100, 0)
    with pytest.raises(TooLargeError, match="1 of 2 regions, 100 of 150 bytes") as caught:
        table.register("b", SECRET, 0, 51, 0)
    assert SECRET not in str(caught.value)
    table.register("b", SECRET, 0, 50, 0)
    table.unregister("a")
    table.register("c", SECRET, 0, 1, 0)
    with pytest.raises(TooLargeError, match="2 of 2 regions"):
        table.register("d", SECRET, 0, 1, 0)


def test_a_region_that_others_have_open_stays(files: SharedFiles, table: RegionTable) -> None:
    """However long it is not used; once they have closed it, for the lease."""
    table.register("r", SECRET, 0, 100, 0)
    table.register("same file", SECRET, 0, 100, 0)
    fd = os.open(files.folder / SECRET, os.O_RDONLY)
    table.sweep(1000)
    os.close(fd)
    table.sweep(1059)
    assert names(table) == ["r", "same file"]
    table.release(table.hold([RegionPart("r", 0, 1)], 1059))
    table.sweep(1060)
    assert names(table) == ["r"]
    table.sweep(1118)
    assert names(table) == ["r"]
    table.sweep(1119)
    assert (names(table), table.num_regions) == ([], 0)


def test_a_region_that_nobody_can_open_any_more_goes_at_once(
    files: SharedFiles, table: RegionTable
) -> None:
    """Its file has no name, and no other process has it; but not while a request uses it."""
    table.register("r", SECRET, 0, 100, 0)
    fd = os.open(files.folder / SECRET, os.O_RDONLY)
    (files.folder / SECRET).unlink()
    table.sweep(1)
    assert names(table) == ["r"], "it was unlinked early, by a client that goes on"
    os.close(fd)
    held = table.hold([RegionPart("r", 0, 1)], 1)
    table.sweep(2)
    assert names(table) == ["r"]
    table.release(held)
    table.sweep(3)
    assert names(table) == []


class Unknown(RegionFile):
    """A file of which the system does not tell who has it open."""

    is_shared = None


def doubtful(files: SharedFiles, **quota: float) -> RegionTable:
    def opened(key: str) -> RegionFile:
        return Unknown(os.open(files.folder / key, os.O_RDWR))

    return RegionTable(opened, Quota(**quota))  # type: ignore[arg-type]


def test_where_nobody_can_tell_a_region_goes_when_its_room_is_needed(files: SharedFiles) -> None:
    """The one that was not used for the longest time, after its lease."""
    table = doubtful(files, max_regions=2, lease_s=60)
    table.register("a", SECRET, 0, 1, 0)
    table.register("b", SECRET, 0, 1, 5)
    table.sweep(1000)
    table.release(table.hold([RegionPart("a", 0, 1)], 1000))
    with pytest.raises(TooLargeError):
        table.register("c", SECRET, 0, 1, 64)
    table.register("c", SECRET, 0, 1, 1001)
    assert names(table) == ["a", "c"]


def test_where_nobody_can_tell_an_unlinked_file_goes_after_the_lease(files: SharedFiles) -> None:
    """Most clients unlink what they are done with."""
    table = doubtful(files, lease_s=60)
    table.register("r", SECRET, 0, 1, 0)
    (files.folder / SECRET).unlink()
    table.sweep(59)
    assert names(table) == ["r"]
    table.sweep(60)
    assert names(table) == []


def test_texts_show_a_name_on_one_line(table: RegionTable) -> None:
    """Cut short, whatever is in it."""
    with pytest.raises(NotFoundError) as caught:
        table.listed("a\nb\x1b[2J" + "n" * 5000)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(("register", "unregister", "hold", "release", "sweep")),
            st.sampled_from(("a", "b", "")),
            st.integers(1, 120),
        ),
        max_size=30,
    )
)
def test_whatever_is_done_the_counts_are_right_and_what_is_held_is_open(
    files: SharedFiles, steps: list[tuple[str, str, int]]
) -> None:
    """In any order, within the quota."""
    files.opened.clear()
    table = files.table(max_regions=3, max_bytes=250, lease_s=5)
    held = []
    for now, (what, name, number) in enumerate(steps):
        try:
            if what == "register":
                table.register(name, SECRET, 0, number, now)
            elif what == "unregister":
                table.unregister(name)
            elif what == "hold":
                held.append(table.hold([RegionPart(name, 0, number)], now))
            elif what == "release" and held:
                table.release(held.pop(0))
            elif what == "sweep":
                table.sweep(now)
        except RequestError:
            pass
        for regions in held:
            regions[0].read_into(memoryview(bytearray(1)), 0)
        alive = {id(r): r for r in (*table.listed(""), *(regions[0] for regions in held))}
        assert table.num_regions == len(alive) <= 3
        assert table.num_bytes == sum(region.size_bytes for region in alive.values()) <= 250
    for regions in held:
        table.release(regions)
    table.close()
    assert (table.num_regions, table.num_bytes) == (0, 0)
    assert not any(is_open(file) for file in files.opened)
