"""Memory of the virtual device: real addresses, every access checked, nothing freed before the end.

Rules
- Fresh memory holds `FRESH` and freed memory `FREED` in every byte: whoever reads what nobody
  wrote, or what was given back, gets wrong bytes every time, and never a crash.
- An access that is not inside one open buffer of the right place is a bug of ours: AssertionError.
"""

from __future__ import annotations

from bisect import bisect_right
from ctypes import c_uint8, memmove
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from headrace.device.base import ALIGNMENT_BYTES, DevicePtr, HostPtr
from headrace.device.ledger import Ledger
from headrace.device.sim_trap import Trap
from headrace.errors import DeviceError

FRESH = 0xCD
FREED = 0xDD

Place = Literal["host", "device"]


class SimBuffer:
    """What the buffers of both places share; `SimMemory` makes them."""

    def __init__(self, memory: SimMemory, place: Place, size_bytes: int) -> None:
        memory.reserve(place, size_bytes)
        padded = np.full(max(size_bytes, 1) + ALIGNMENT_BYTES, FRESH, np.uint8)
        offset = -padded.ctypes.data % ALIGNMENT_BYTES
        self.array = padded[offset : offset + size_bytes]  # (size_bytes,) uint8
        self.address = padded.ctypes.data + offset
        self.size_bytes = size_bytes
        self.place = place
        self.is_closed = False
        self.name = memory.ledger.enter(f"{place} buffer")
        self._memory = memory
        memory.keep(self)

    def close(self) -> None:
        """Give the memory back: its bytes become `FREED`. A second call does nothing."""
        if not self.is_closed:
            self.is_closed = True
            self.array.fill(FREED)
            self._memory.used_bytes[self.place] -= self.size_bytes
            self._memory.ledger.strike(self.name)


class SimHostBuffer(SimBuffer):
    """Stands for pinned memory."""

    def __init__(self, memory: SimMemory, size_bytes: int) -> None:
        super().__init__(memory, "host", size_bytes)
        self.ptr = HostPtr(self.address)
        self.view = self.array.data  # (size_bytes,) uint8, writable


class SimPinnedRange(SimBuffer):
    """Stands for memory of others that was pinned: what is in it is theirs, also in the end."""

    def __init__(self, memory: SimMemory, address: int, size_bytes: int) -> None:
        memory.reserve("host", size_bytes)
        self.array = np.ctypeslib.as_array((c_uint8 * size_bytes).from_address(address))
        self.address = address
        self.size_bytes = size_bytes
        self.place = "host"
        self.is_closed = False
        self.name = memory.ledger.enter("pinned range")
        self.ptr = HostPtr(address)
        self._memory = memory
        memory.keep(self)

    def close(self) -> None:
        """Let go of it; a second call does nothing."""
        if not self.is_closed:
            self.is_closed = True
            self._memory.used_bytes["host"] -= self.size_bytes
            self._memory.ledger.strike(self.name)
            self._memory.forget(self)


class SimDeviceBuffer(SimBuffer):
    """Stands for the memory of a GPU: to be reached by copies and launched work alone."""

    def __init__(self, memory: SimMemory, size_bytes: int) -> None:
        super().__init__(memory, "device", size_bytes)
        self.ptr = DevicePtr(self.address)


class SimMemory:
    """All memory of one virtual device.

    Args:
        total_bytes: What there is of each place.
        is_unified: The places are one: any pointer may stand for any other.
        ledger: Where open buffers are entered.
    """

    def __init__(self, total_bytes: dict[Place, int], ledger: Ledger, *, is_unified: bool) -> None:
        self.total_bytes = total_bytes
        self.used_bytes: dict[Place, int] = {"host": 0, "device": 0}
        self.ledger = ledger
        self.trap: Trap[bool] = Trap()
        self._is_unified = is_unified
        self._addresses: list[int] = []  # ascending
        self._buffers: list[SimBuffer] = []  # in the order of their addresses

    def bytes_at(self, ptr: int, size_bytes: int, place: Place | None = None) -> NDArray[np.uint8]:
        """Return (size_bytes,) uint8 at an address, writable; any place when none is named."""
        position = bisect_right(self._addresses, ptr) - 1
        assert position >= 0, f"no buffer at {ptr:#x}"
        buffer = self._buffers[position]
        start = ptr - buffer.address
        what = f"bytes {start} to {start + size_bytes} of {buffer.name} ({buffer.size_bytes} bytes)"
        assert 0 <= size_bytes <= buffer.size_bytes - start, f"{what} are not inside it"
        assert not buffer.is_closed, f"{what} are used after its close()"
        if place and not self._is_unified:
            assert buffer.place == place, f"{what} are used as {place} memory"
        return buffer.array[start : start + size_bytes]

    def copy(self, dst: tuple[int, Place], src: tuple[int, Place], size_bytes: int) -> None:
        """Copy between two (address, place)."""
        self.check(dst, src, size_bytes)
        memmove(dst[0], src[0], size_bytes)

    def clear(self, dst: int, size_bytes: int) -> None:
        """Write zeros over device memory."""
        self.bytes_at(dst, size_bytes, "device")[:] = 0

    def check(self, dst: tuple[int, Place], src: tuple[int, Place], size_bytes: int) -> None:
        """Refuse a copy that would not stay inside open buffers of the right places."""
        self.bytes_at(dst[0], size_bytes, dst[1])
        self.bytes_at(src[0], size_bytes, src[1])

    def reserve(self, place: Place, size_bytes: int) -> None:
        """Count an allocation, or refuse it as CUDA does."""
        assert size_bytes >= 0, size_bytes
        free_bytes = self.total_bytes[place] - self.used_bytes[place]
        if self.trap.passed() or size_bytes > free_bytes:
            raise DeviceError(
                f"{size_bytes} bytes of {place} memory cannot be had: {free_bytes} of "
                f"{self.total_bytes[place]} bytes are free",
                code=2,
                name="cudaErrorMemoryAllocation",
            )
        self.used_bytes[place] += size_bytes

    def keep(self, buffer: SimBuffer) -> None:
        """Know a buffer by its address, for as long as the device lives."""
        position = bisect_right(self._addresses, buffer.address)
        self._addresses.insert(position, buffer.address)
        self._buffers.insert(position, buffer)

    def forget(self, buffer: SimBuffer) -> None:
        """Know a buffer no more: its addresses may be others' from now on."""
        position = self._buffers.index(buffer)
        del self._addresses[position], self._buffers[position]
