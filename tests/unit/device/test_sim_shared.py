"""Memory of other processes on the virtual device: there while it is open, and not longer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.device.base import DevicePtr, HostPtr
from headrace.device.sim import SimDevice
from headrace.device.sim_memory import FRESH
from headrace.errors import DeviceError


@pytest.fixture
def device() -> Iterator[SimDevice]:
    made = SimDevice()
    yield made
    made.close()


def test_both_see_the_same_bytes(device: SimDevice) -> None:
    """However often it is open; each opening is closed once, and the bytes stay the other's."""
    foreign = device.share_memory(100)
    assert foreign.array.tolist() == [FRESH] * 100
    first, second = device.open_shared(foreign.handle), device.open_shared(foreign.handle)
    assert (first.ptr, first.size_bytes) == (second.ptr, 100)
    memory, stream = device.alloc_device(100), device.open_stream()
    device.bytes_at(memory.ptr, 100)[:] = range(100)
    first.close()
    first.close()
    stream.copy_d2d(second.ptr, memory.ptr, 50)
    stream.synchronize()
    assert foreign.array.tolist() == [*range(50), *[FRESH] * 50]
    second.close()
    assert foreign.array[49] == 49
    stream.close()
    memory.close()


def test_what_is_not_open_is_not_there(device: SimDevice) -> None:
    """Neither before nor after, nor when a copy that was enqueued comes to its turn."""
    foreign = device.share_memory(100)
    memory, stream = device.alloc_device(100), device.open_stream()
    with pytest.raises(AssertionError):
        stream.copy_d2d(memory.ptr, DevicePtr(foreign.address), 10)
    shared = device.open_shared(foreign.handle)
    with pytest.raises(AssertionError, match="are not inside it"):
        stream.copy_d2d(memory.ptr, DevicePtr(shared.ptr + 91), 10)
    with pytest.raises(AssertionError, match="are used as host memory"):
        stream.copy_h2d(memory.ptr, HostPtr(shared.ptr), 10)
    stream.copy_d2d(memory.ptr, shared.ptr, 10)
    shared.close()
    with pytest.raises(AssertionError):
        stream.synchronize()
    stream.close()
    memory.close()


def test_who_shares_it_may_end(device: SimDevice) -> None:
    """What is open stays; it cannot be opened any more."""
    foreign = device.share_memory(10)
    shared = device.open_shared(foreign.handle)
    foreign.is_alive = False
    with pytest.raises(DeviceError, match="no living process shares"):
        device.open_shared(foreign.handle)
    device.bytes_at(shared.ptr, 10)[:] = 1
    assert device.leaks() == ["shared buffer 1"]
    shared.close()


def test_a_unified_device_has_none() -> None:
    """Nor does it say that it could."""
    device = SimDevice(is_unified=True)
    assert not device.opens_shared
    with pytest.raises(DeviceError, match="unified"):
        device.open_shared(device.share_memory(10).handle)
