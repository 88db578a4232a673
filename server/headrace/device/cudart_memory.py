"""Buffers of a GPU: pinned host memory and device memory.

The binding comes as an argument, because one file alone imports it.
"""

from __future__ import annotations

import ctypes
import resource
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.device.base import DevicePtr, HostPtr
from headrace.errors import DeviceError

if TYPE_CHECKING:
    from headrace.device.cudart import CudartDevice


class PinnedBuffer:
    """Page-locked host memory."""

    def __init__(self, rt: Any, device: CudartDevice, size_bytes: int) -> None:
        """Allocate it, for all GPUs of the process.

        Raises:
            DeviceError: It cannot be had.
        """
        size, flags = max(size_bytes, 1), rt.cudaHostAllocPortable
        address = device.call(pinning(size_bytes), rt.cudaHostAlloc, size, flags)
        self.ptr = HostPtr(address)
        self.size_bytes = size_bytes
        memory = (ctypes.c_ubyte * max(size_bytes, 1)).from_address(address)
        # Through numpy, because the view of a ctypes array has a format of its own ('<B').
        self.view = np.ctypeslib.as_array(memory).data[:size_bytes]  # (size_bytes,) uint8, writable
        self._free = partial(device.release, "freeing pinned memory", rt.cudaFreeHost)
        self._ledger = device.ledger
        self._name = device.ledger.enter("host buffer")
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


class HeldMemory:
    """Memory of others that CUDA holds for the device until this is closed."""

    def __init__(self, device: CudartDevice, kind: str, let_go: Callable[[], None]) -> None:
        """Note what is held.

        Args:
            device: Whose context holds it.
            kind: What the ledger calls it.
            let_go: Gives it back to CUDA; logs what fails.
        """
        self._let_go = let_go
        self._bind_thread = device.bind_thread
        self._ledger = device.ledger
        self._name = device.ledger.enter(kind)
        self._is_closed = False

    def close(self) -> None:
        """Let go of it; a second call does nothing. No copy may be under way."""
        if not self._is_closed:
            self._is_closed = True
            self._ledger.strike(self._name)
            with suppress(DeviceError):  # a dead device: the memory is let go of all the same
                self._bind_thread()
            self._let_go()


class CudartPinnedRange(HeldMemory):
    """Host memory of others, page-locked for copies."""

    def __init__(self, rt: Any, device: CudartDevice, address: int, size_bytes: int) -> None:
        """Lock it, for all GPUs of the process; pages that it lacks make that fail, and no more.

        Raises:
            DeviceError: It cannot be pinned.
        """
        flags = rt.cudaHostRegisterPortable
        device.call(pinning(size_bytes), rt.cudaHostRegister, address, size_bytes, flags)
        self.ptr = HostPtr(address)
        unpin = partial(device.release, "unpinning memory", rt.cudaHostUnregister, address)
        super().__init__(device, "pinned range", unpin)


class DeviceMemory:
    """Memory of the GPU; its alignment is the driver's, 512 bytes or more."""

    def __init__(self, rt: Any, device: CudartDevice, size_bytes: int) -> None:
        """Allocate it.

        Raises:
            DeviceError: It cannot be had.
        """
        device.bind_thread()
        status, address = rt.cudaMalloc(max(size_bytes, 1))
        if status is not rt.cudaError_t.cudaSuccess:
            room = "{} of {} bytes are free".format(*device.memory_info())
            raise device.fault(status, f"allocating {size_bytes} bytes of device memory ({room})")
        self.ptr = DevicePtr(address)
        self.size_bytes = size_bytes
        self._free = partial(device.release, "freeing device memory", rt.cudaFree)
        self._ledger = device.ledger
        self._name = device.ledger.enter("device buffer")
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
