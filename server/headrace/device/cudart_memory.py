"""Buffers of a GPU: pinned host memory and device memory, over addresses that `cudart` hands in."""

from __future__ import annotations

import ctypes
import resource
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np

from headrace.device.base import DevicePtr, HostPtr
from headrace.device.ledger import Ledger


class PinnedBuffer:
    """Page-locked host memory.

    Args:
        address: Where it is.
        size_bytes: How much of it is used.
        free: Gives it back to CUDA.
        ledger: Where the buffer is entered until it is closed.
    """

    def __init__(
        self, address: int, size_bytes: int, free: Callable[[int], None], ledger: Ledger
    ) -> None:
        self.ptr = HostPtr(address)
        self.size_bytes = size_bytes
        memory = (ctypes.c_ubyte * max(size_bytes, 1)).from_address(address)
        # Through numpy, because the view of a ctypes array has a format of its own ('<B').
        self.view = np.ctypeslib.as_array(memory).data[:size_bytes]  # (size_bytes,) uint8, writable
        self._free = free
        self._ledger = ledger
        self._name = ledger.enter("host buffer")
        self._is_closed = False

    def close(self) -> None:
        """Give the memory back; a second call does nothing. No array may look into it any more."""
        if not self._is_closed:
            self._is_closed = True
            self._ledger.strike(self._name)
            with suppress(
                BufferError
            ):  # an array looks into it, against the rule: free all the same
                self.view.release()
            self._free(self.ptr)


class DeviceMemory:
    """Memory of the GPU.

    Args:
        address: Where it is.
        size_bytes: How much of it is used.
        free: Gives it back to CUDA.
        ledger: Where the buffer is entered until it is closed.
    """

    def __init__(
        self, address: int, size_bytes: int, free: Callable[[int], None], ledger: Ledger
    ) -> None:
        self.ptr = DevicePtr(address)
        self.size_bytes = size_bytes
        self._free = free
        self._ledger = ledger
        self._name = ledger.enter("device buffer")
        self._is_closed = False

    def close(self) -> None:
        """Give the memory back; a second call does nothing."""
        if not self._is_closed:
            self._is_closed = True
            self._ledger.strike(self._name)
            self._free(self.ptr)


def pinning(size_bytes: int) -> str:
    """Say what is being done and what limits it, for the error of a pinned allocation."""
    soft_bytes = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    limit = "unlimited" if soft_bytes == resource.RLIM_INFINITY else f"{soft_bytes} bytes"
    nodes = "unknown"
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text("ascii").splitlines():
            if line.startswith("Mems_allowed_list:"):
                nodes = line.split()[1]
    return (
        f"pinning {size_bytes} bytes of host memory (limited by RLIMIT_MEMLOCK, here {limit}, "
        "which `ulimit -l` or docker's `--ulimit memlock=-1` raise; by the free memory of the "
        f"allowed NUMA nodes, here {nodes}; by the container. --pinned-memory-pool-byte-size "
        "asks for less)"
    )
