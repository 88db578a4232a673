"""Regions that a device copies itself: pinned when they are registered, let go of when unused."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.device.base import DevicePtr, HostPtr, PinnedRange, SharedBuffer
from headrace.device.sim import SimDevice
from headrace.errors import DeviceError, TooLargeError
from headrace.regions.part import RegionPart
from headrace.regions.pin import RegionPin
from headrace.regions.region import Region
from headrace.regions.table import Quota, RegionTable
from helpers.shared_files import SharedFiles, is_open

SIZE = 20_000


@pytest.fixture
def device() -> Iterator[SimDevice]:
    made = SimDevice()
    yield made
    made.close()


@pytest.fixture
def files(tmp_path: Path) -> SharedFiles:
    made = SharedFiles(tmp_path)
    made.make("m", bytes(range(250)) * 80)
    return made


def copied(device: SimDevice, region: Region, size: int) -> bytes:
    """The first bytes of a region, by way of the device."""
    assert isinstance(region.pin, RegionPin)
    memory, back = device.alloc_device(size), device.alloc_host(size)
    stream = device.open_stream()
    stream.copy_h2d(memory.ptr, region.pin.ptr, size)
    stream.copy_d2h(back.ptr, memory.ptr, size)
    stream.synchronize()
    data = bytes(back.view)
    for thing in (stream, memory, back):
        thing.close()
    return data


@pytest.mark.parametrize("offset", [0, 1, 4096, 5000, 8191])
def test_the_device_sees_the_piece(files: SharedFiles, device: SimDevice, offset: int) -> None:
    """Wherever it begins; what the device writes there is in the file."""
    table = files.table(device)
    table.register("r", "m", offset, 100, 0)
    (region,) = table.listed("r")
    assert copied(device, region, 100) == (files.folder / "m").read_bytes()[offset : offset + 100]
    memory, stream = device.alloc_device(3), device.open_stream()
    device.bytes_at(memory.ptr, 3)[:] = (7, 8, 9)
    assert region.pin is not None
    stream.copy_d2h(HostPtr(region.pin.ptr + 10), DevicePtr(memory.ptr), 3)
    stream.synchronize()
    assert (files.folder / "m").read_bytes()[offset + 10 : offset + 13] == bytes((7, 8, 9))
    stream.close()
    memory.close()
    table.close()
    assert device.leaks() == []


def test_a_mapping_of_our_own_is_nobody_elses(files: SharedFiles, device: SimDevice) -> None:
    """Nor is one of a second region in the same file."""
    table = files.table(device, lease_s=10)
    table.register("a", "m", 0, SIZE, 0)
    table.register("b", "m", 0, SIZE, 0)
    (a, b) = table.listed("")
    assert a.memory is b.memory
    assert a.memory.is_shared is False
    table.sweep(10)
    assert (table.num_regions, device.leaks()) == (0, [])
    assert not any(is_open(file) for file in files.opened)


def test_it_is_unpinned_after_its_last_use_and_not_by_whoever_ends_it(
    files: SharedFiles, device: SimDevice
) -> None:
    """Until then it counts: by the next look, or the next that is registered."""
    table = files.table(device, max_regions=1)
    table.register("r", "m", 0, SIZE, 0)
    held = table.hold([RegionPart("r", 0, 1)], 0)
    table.unregister("r")
    table.sweep(0)
    assert len(device.leaks()) == 1
    with pytest.raises(TooLargeError):
        table.register("s", "m", 0, SIZE, 0)
    table.release(held)
    assert (len(device.leaks()), table.num_regions) == (1, 1)
    table.register("s", "m", 0, SIZE, 0)
    assert (len(device.leaks()), table.num_regions) == (1, 1)
    table.unregister("s")
    table.sweep(0)
    assert (device.leaks(), table.num_regions) == ([], 0)


class Unwilling:
    """A device that pins nothing."""

    opens_shared = False

    def pin_host(self, address: int, size_bytes: int) -> PinnedRange:
        raise DeviceError(f"{size_bytes} bytes at {address:#x}")

    def open_shared(self, handle: bytes) -> SharedBuffer:
        raise AssertionError("nobody may ask")


def test_what_cannot_be_pinned_is_copied_by_the_host(files: SharedFiles) -> None:
    """Told in the log; the client need not know."""
    table = RegionTable(files.open, Quota(), Unwilling())
    table.register("r", "m", 0, SIZE, 0)
    (region,) = table.listed("r")
    assert region.pin is None
    room = memoryview(bytearray(3))
    region.read_into(room, 5)
    assert bytes(room) == bytes((5, 6, 7))
    table.close()
    assert not any(is_open(file) for file in files.opened)


def test_what_cannot_be_mapped_is_a_device_error(files: SharedFiles, device: SimDevice) -> None:
    """A file that is shorter by then, for one."""
    file = files.open("m")
    os.truncate(files.folder / "m", 10)
    with pytest.raises(DeviceError, match="mapping"):
        RegionPin(device, file.fd, 0, SIZE)
    with pytest.raises(DeviceError):
        RegionPin(Unwilling(), file.fd, 0, 10)
    file.close()
