"""Regions in device memory of others: opened, bounded, listed apart, closed when unused."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.device.sim import SimDevice
from headrace.device.sim_shared import SimShared
from headrace.errors import (
    DeviceError,
    ExistsError,
    NotFoundError,
    RequestError,
    TooLargeError,
    UnsupportedError,
)
from headrace.regions.part import RegionPart
from headrace.regions.table import MAX_NAME_CHARS, RegionTable
from helpers.shared_files import SharedFiles, is_open

SIZE = 1000
ANY = 1 << 70  # of a quota, so that something else has to refuse


@pytest.fixture
def device() -> Iterator[SimDevice]:
    made = SimDevice()
    yield made
    made.close()


@pytest.fixture
def files(tmp_path: Path) -> SharedFiles:
    made = SharedFiles(tmp_path)
    made.make("m", bytes(SIZE))
    return made


@pytest.fixture
def table(files: SharedFiles, device: SimDevice) -> Iterator[RegionTable]:
    made = files.table(device)
    yield made
    made.close()
    assert (made.num_regions, made.num_bytes, device.leaks()) == (0, 0, [])
    assert not any(is_open(file) for file in files.opened)


def names(table: RegionTable) -> list[str]:
    return [region.name for region in table.listed("", on_device=True)]


def test_a_region_is_where_the_device_can_copy_it(device: SimDevice, table: RegionTable) -> None:
    """And nobody else: the host neither reads nor writes it, and says what to do instead."""
    foreign = device.share_memory(SIZE)
    table.register_shared("r", foreign.handle, SIZE - 1, 0)
    (region,) = table.hold([RegionPart("r", 5, SIZE - 6)], 0)
    assert region.is_on_device
    assert region.pin is not None
    assert device.bytes_at(region.pin.ptr, SIZE).ctypes.data == foreign.address
    before = foreign.array.copy()
    with pytest.raises(RequestError, match="region 'r': it lies in a GPU's memory.*in the message"):
        region.read_into(memoryview(bytearray(3)), 0)
    with pytest.raises(RequestError, match="region 'r': it lies in a GPU's memory.*in the message"):
        region.write(b"abc", 0)
    region.check(SIZE - 1)
    assert (foreign.array == before).all()
    table.release([region], num_direct_bytes=7)
    assert (table.num_direct_bytes, table.num_regions, table.num_bytes) == (7, 1, SIZE - 1)


@pytest.mark.parametrize("size", [0, -1, SIZE + 1, 2**63, 2**64 - 1])
def test_a_region_lies_within_what_is_shared(
    files: SharedFiles, device: SimDevice, size: int
) -> None:
    """Nothing stays open that is refused, and the next one is taken."""
    table = files.table(device, max_bytes=ANY)
    foreign = device.share_memory(SIZE)
    with pytest.raises(RequestError, match="'r'"):
        table.register_shared("r", foreign.handle, size, 0)
    assert (table.num_regions, table.num_bytes, names(table), device.leaks()) == (0, 0, [], [])
    table.register_shared("r", foreign.handle, SIZE, 0)
    table.close()


@pytest.mark.parametrize(
    ("offset", "size"), [(0, 101), (100, 1), (99, 2), (2**63 - 1, 2**63 - 1), (2**62, 0)]
)
def test_a_part_lies_within_its_region(
    device: SimDevice, table: RegionTable, offset: int, size: int
) -> None:
    """Though the memory goes on behind it."""
    table.register_shared("r", device.share_memory(SIZE).handle, 100, 0)
    with pytest.raises(RequestError, match=r"do not lie within shared memory region 'r'.*has 100"):
        table.hold([RegionPart("r", offset, size)], 0)


@pytest.mark.parametrize("size_bytes", [0, 63, 64, 65, 1 << 20])
def test_handles_that_open_nothing(
    table: RegionTable, size_bytes: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Refused as wrong requests."""
    with caplog.at_level(logging.DEBUG), pytest.raises(RequestError, match="region 'r': "):
        table.register_shared("r", bytes(size_bytes), 8, 0)
    assert caplog.text == ""


def test_no_text_has_a_handle(
    device: SimDevice, table: RegionTable, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever refuses it."""
    foreign = device.share_memory(SIZE)
    texts = []
    with caplog.at_level(logging.DEBUG):
        table.register_shared("r", foreign.handle, SIZE, 0)
        for name, size in (("r", 1), ("s", SIZE + 1), ("", 1), ("s", 0), ("s", 1 << 40)):
            with pytest.raises(RequestError) as caught:
                table.register_shared(name, foreign.handle, size, 0)
            texts.append(str(caught.value))
        foreign.is_alive = False
        with pytest.raises(RequestError, match="no living process") as caught:
            table.register_shared("s", foreign.handle, 1, 0)
        texts += [str(caught.value), caplog.text]
    for text in texts:
        for secret in (foreign.handle.hex(), str(foreign.handle), repr(foreign.handle[:8])[2:-1]):
            assert secret not in text


def test_names_have_one_space_and_two_lists(device: SimDevice, table: RegionTable) -> None:
    """Each kind is listed and unregistered by itself, as in Triton."""
    handle = device.share_memory(SIZE).handle
    table.register("file", "m", 0, 10, 0)
    table.register_shared("gpu", handle, 10, 0)
    with pytest.raises(ExistsError, match="'file' is registered already"):
        table.register_shared("file", handle, 10, 0)
    with pytest.raises(ExistsError, match="'gpu' is registered already"):
        table.register("gpu", "m", 0, 10, 0)
    for name, on_device in (("gpu", False), ("file", True), ("no", False), ("no", True)):
        with pytest.raises(NotFoundError, match=f"'{name}' is not registered"):
            table.listed(name, on_device=on_device)
        table.unregister(name, on_device=on_device)
    table.unregister("")
    assert (table.listed(""), names(table)) == ([], ["gpu"])
    table.register("file", "m", 0, 10, 0)
    table.unregister("", on_device=True)
    assert ([each.name for each in table.listed("")], names(table)) == (["file"], [])


@pytest.mark.parametrize("name", ["", "n" * (MAX_NAME_CHARS + 1)])
def test_a_name_has_a_length(device: SimDevice, table: RegionTable, name: str) -> None:
    """As any region's; nothing is opened."""
    with pytest.raises(RequestError, match="has 1 to 256 characters"):
        table.register_shared(name, device.share_memory(SIZE).handle, 1, 0)
    assert device.leaks() == []


def test_two_names_for_one_handle(device: SimDevice, table: RegionTable) -> None:
    """One of them goes, the other one stays; and it may come again."""
    handle = device.share_memory(SIZE).handle
    for _ in range(3):
        table.register_shared("a", handle, SIZE, 0)
        table.register_shared("b", handle, SIZE, 0)
        a, b = table.hold([RegionPart("a", 0, 1), RegionPart("b", 0, 1)], 0)
        assert a.pin is not None
        assert b.pin is not None
        assert a.pin.ptr == b.pin.ptr
        table.release([a, b])
        table.unregister("a", on_device=True)
        table.sweep(0)
        assert len(device.leaks()) == 1
        assert (device.bytes_at(b.pin.ptr, SIZE) >= 0).all()
        table.unregister("b", on_device=True)
        table.sweep(0)
        assert device.leaks() == []


def test_it_is_closed_after_its_last_use_and_not_by_whoever_ends_it(
    files: SharedFiles, device: SimDevice
) -> None:
    """To close takes long; until then it counts, and its name is free."""
    table = files.table(device, max_regions=2)
    handle = device.share_memory(SIZE).handle
    table.register_shared("r", handle, SIZE, 0)
    held = table.hold([RegionPart("r", 0, 1)], 0)
    table.unregister("r", on_device=True)
    table.sweep(0)
    table.register_shared("r", handle, 1, 0)
    with pytest.raises(TooLargeError):
        table.register_shared("s", handle, SIZE, 0)
    table.release(held)
    assert (len(device.leaks()), table.num_regions) == (2, 2)
    table.register_shared("s", handle, SIZE, 0)
    assert (len(device.leaks()), table.num_bytes) == (2, SIZE + 1)
    table.close()
    assert (device.leaks(), table.num_regions) == ([], 0)


def test_the_quota_is_of_both_kinds_together(files: SharedFiles, device: SimDevice) -> None:
    """Regions and bytes; what is over is not even opened."""
    table = files.table(device, max_regions=2, max_bytes=150)
    table.register("file", "m", 0, 100, 0)
    handle = device.share_memory(SIZE).handle
    before = device.leaks()
    with pytest.raises(TooLargeError, match="1 of 2 regions, 100 of 150 bytes"):
        table.register_shared("r", handle, 51, 0)
    assert device.leaks() == before
    table.register_shared("r", handle, 50, 0)
    with pytest.raises(TooLargeError, match="2 of 2 regions"):
        table.register_shared("s", handle, 1, 0)
    table.close()


def test_nobody_knows_whose_it_is_so_it_goes_when_its_room_is_needed(
    files: SharedFiles, device: SimDevice
) -> None:
    """After its lease, the one that was not used for the longest time, and at once."""
    table = files.table(device, max_regions=2, lease_s=60)
    foreign = device.share_memory(SIZE)
    table.register_shared("a", foreign.handle, 1, 0)
    table.register_shared("b", foreign.handle, 1, 5)
    foreign.is_alive = False
    table.sweep(1000)
    assert names(table) == ["a", "b"]
    table.release(table.hold([RegionPart("a", 0, 1)], 1000))
    other = device.share_memory(SIZE)
    with pytest.raises(TooLargeError):
        table.register_shared("c", other.handle, 1, 64)
    table.register_shared("c", other.handle, 1, 1001)
    assert (names(table), len(device.leaks())) == (["a", "c"], 2)
    table.close()


@pytest.mark.parametrize("is_unified", [True, None])
def test_a_device_without_memory_of_its_own_offers_none(
    files: SharedFiles, is_unified: bool | None
) -> None:
    """Nor does a table without a device; files are taken."""
    device = None if is_unified is None else SimDevice(is_unified=is_unified)
    table = files.table(device)
    assert not table.takes_device_memory
    with pytest.raises(UnsupportedError, match="CUDA shared memory region 'r' cannot"):
        table.register_shared("r", bytes(64), 8, 0)
    table.register("r", "m", 0, 8, 0)
    table.close()


def test_a_dead_device_is_no_fault_of_the_caller(files: SharedFiles) -> None:
    """It is told as what it is."""
    device = SimDevice()
    table = files.table(device)
    handle = device.share_memory(SIZE).handle
    device.fail_device()
    with pytest.raises(DeviceError, match="illegal address"):
        table.register_shared("r", handle, 8, 0)
    assert table.num_regions == 0


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(("file", "share", "end", "forget", "hold", "release", "sweep")),
            st.sampled_from(("a", "b", "")),
            st.integers(1, 120),
        ),
        max_size=30,
    )
)
def test_whatever_is_done_the_counts_are_right_and_what_is_held_is_open(
    files: SharedFiles, steps: list[tuple[str, str, int]]
) -> None:
    """In any order, of both kinds, within one quota."""
    files.opened.clear()
    os.truncate(files.folder / "m", SIZE)
    device = SimDevice()
    table = files.table(device, max_regions=3, max_bytes=250, lease_s=5)
    foreign, held = device.share_memory(100), []
    for now, (what, name, number) in enumerate(steps):
        try:
            if what == "file":
                table.register(name, "m", 0, number, now)
            elif what == "share":
                table.register_shared(name, foreign.handle, number, now)
            elif what == "end":
                foreign.is_alive = False
                foreign = device.share_memory(100)
            elif what == "forget":
                table.unregister(name, on_device=number > 60)
            elif what == "hold":
                held.append(table.hold([RegionPart(name, 0, number)], now))
            elif what == "release" and held:
                table.release(held.pop(0))
            elif what == "sweep":
                table.sweep(now)
        except RequestError:
            pass
        for (region,) in held:
            assert region.pin is not None
            device.bytes_at(region.pin.ptr, region.size_bytes)
        known = [*table.listed(""), *table.listed("", on_device=True)]
        alive = {id(r): r for r in (*known, *(region for (region,) in held))}
        assert len(alive) <= table.num_regions <= 3
        assert sum(region.size_bytes for region in alive.values()) <= table.num_bytes <= 250
    for regions in held:
        table.release(regions)
    table.close()
    assert (table.num_regions, table.num_bytes, device.leaks()) == (0, 0, [])
    assert not any(is_open(file) for file in files.opened)
    device.close()


class SlowlyClosed:
    """Memory that takes until somebody has done something else, or a while, to be closed."""

    def __init__(self, buffer: SimShared, is_begun: Event, is_over: Event) -> None:
        self.ptr, self.size_bytes = buffer.ptr, buffer.size_bytes
        self._buffer, self._is_begun, self._is_over = buffer, is_begun, is_over

    def close(self) -> None:
        self._is_begun.set()
        self._is_over.wait(0.3)
        self._buffer.close()


def test_room_that_another_thread_is_making_is_waited_for(
    files: SharedFiles, device: SimDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A region comes while a look lets go of one that left: there is room for it."""
    is_begun, is_over = Event(), Event()
    table = files.table(device, max_regions=1)
    table.register_shared("a", device.share_memory(SIZE).handle, SIZE, 0)
    (region,) = table.listed("a", on_device=True)
    assert isinstance(region.pin, SimShared)
    monkeypatch.setattr(region, "pin", SlowlyClosed(region.pin, is_begun, is_over))
    table.unregister("a", on_device=True)
    look = Thread(target=table.sweep, args=(0,))
    look.start()
    assert is_begun.wait(10)
    try:
        table.register_shared("b", device.share_memory(SIZE).handle, SIZE, 0)
    finally:
        is_over.set()
        look.join()
    assert names(table) == ["b"]
    table.close()
    assert (table.num_regions, device.leaks()) == (0, [])
