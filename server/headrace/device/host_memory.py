"""Memory of the host device: anonymous mappings, page-aligned, zeroed and touched at once."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np

from headrace.device.base import HostPtr
from headrace.device.ledger import Ledger
from headrace.errors import DeviceError

Pointer = TypeVar("Pointer", bound=int)


class OpenRange:
    """Memory of others, which needs nothing to be copied."""

    def __init__(self, ptr: HostPtr) -> None:
        self.ptr = ptr

    def close(self) -> None:
        """Nothing was done to it."""


HUGE_PAGE_BYTES = 2 * 1024 * 1024
"""Mappings of at least this size ask for huge pages: 512 times fewer page faults to touch them."""


class HostMemory(Generic[Pointer]):
    """One mapping, both a host and a device buffer. Page alignment is more than `ALIGNMENT_BYTES`.

    Every page is touched here, so that no request pays for its page faults, and a mapping is zeroed
    by the kernel, so that nothing of an earlier owner is ever in it.

    Args:
        size_bytes: 0 is allowed, and has an address too.
        pointer: The type of `ptr`: `HostPtr` or `DevicePtr`.
        ledger: Where the buffer is entered until it is closed.
    """

    def __init__(self, size_bytes: int, pointer: Callable[[int], Pointer], ledger: Ledger) -> None:
        self._mapping = _map(size_bytes)
        self.ptr = pointer(ctypes.addressof(ctypes.c_char.from_buffer(self._mapping)))
        self.size_bytes = size_bytes
        self.view = memoryview(self._mapping)[:size_bytes]  # (size_bytes,) uint8, writable
        self._ledger = ledger
        self._name = ledger.enter("buffer")

    def close(self) -> None:
        """Give the memory back; a second call does nothing."""
        self._ledger.strike(self._name)
        with contextlib.suppress(BufferError):  # an array looks into it: it goes when they all do
            self.view.release()
            self._mapping.close()


def _map(size_bytes: int) -> mmap.mmap:
    assert size_bytes >= 0, size_bytes
    is_large = size_bytes >= HUGE_PAGE_BYTES
    try:
        if is_large and size_bytes > memory_info()[0]:
            raise MemoryError("more than is free")  # touching it would end the process
        mapping = mmap.mmap(-1, max(size_bytes, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, OverflowError, ValueError, MemoryError) as error:
        free_bytes, total_bytes = memory_info()
        raise DeviceError(
            f"{size_bytes} bytes of memory cannot be had ({error}): {free_bytes} of {total_bytes} "
            "bytes are free, and `ulimit -v` or the container may allow less; serve fewer models, "
            "or smaller batches, queues and pools"
        ) from error
    if is_large and hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without them
            mapping.madvise(mmap.MADV_HUGEPAGE)
    np.frombuffer(mapping, np.uint8)[:: mmap.PAGESIZE] = 0
    return mapping


def memory_info() -> tuple[int, int]:
    """Return (free, total) bytes of physical memory; free is what can be had without swapping."""
    total_bytes = os.sysconf("SC_PHYS_PAGES") * mmap.PAGESIZE
    try:
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
    except OSError:
        return total_bytes, total_bytes  # not Linux
    kilobytes = {line.split(":")[0]: int(line.split()[1]) for line in lines}
    return kilobytes["MemAvailable"] * 1024, total_bytes
