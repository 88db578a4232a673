"""Memory of the host device: clean, present, and safe to close."""

from __future__ import annotations

import ctypes
import mmap
import resource
from pathlib import Path

import numpy as np
import pytest

from headrace.device.host import HostDevice
from headrace.errors import DeviceError

MIB = 1024 * 1024


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * mmap.PAGESIZE


def test_fresh_memory_is_zero() -> None:
    """Nothing of an earlier owner is in a new buffer."""
    device = HostDevice()
    for _ in range(3):
        buffer = device.alloc_host(3 * MIB)
        array = np.frombuffer(buffer.view, np.uint8)
        assert not array.any()
        array[:] = 255
        del array
        buffer.close()


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux's /proc")
@pytest.mark.parametrize("method", ["alloc_host", "alloc_device"])
def test_every_page_is_there_before_the_first_request(method: str) -> None:
    """The resident size grows at the allocation, and the first use takes no page faults."""
    before_bytes = resident_bytes()
    buffer = getattr(HostDevice(), method)(64 * MIB)
    assert resident_bytes() - before_bytes > 60 * MIB
    faults_before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
    ctypes.memset(buffer.ptr, 1, buffer.size_bytes)
    num_faults = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - faults_before
    assert num_faults < buffer.size_bytes / mmap.PAGESIZE / 100
    buffer.close()
    assert resident_bytes() - before_bytes < 30 * MIB


def test_an_array_outlives_the_close() -> None:
    """Whoever still looks into a closed buffer sees its bytes, not a crash; the name is struck."""
    device = HostDevice()
    buffer = device.alloc_host(10_000)
    array = np.frombuffer(buffer.view, np.uint8)
    array[:] = 7
    buffer.close()
    buffer.close()
    assert array.tolist() == [7] * 10_000


def test_a_closed_view_is_refused() -> None:
    """The view of a closed buffer raises instead of showing memory that is gone."""
    buffer = HostDevice().alloc_host(100)
    buffer.close()
    with pytest.raises(ValueError, match="released"):
        buffer.view[0]


def test_more_than_is_free_is_refused_untouched() -> None:
    """What would bring the system to its knees is refused before a page of it is touched."""
    device = HostDevice()
    free_bytes, total_bytes = device.memory_info()
    with pytest.raises(DeviceError, match="more than is free") as caught:
        device.alloc_host(total_bytes + free_bytes)
    assert f"of {total_bytes} bytes are free" in str(caught.value)
