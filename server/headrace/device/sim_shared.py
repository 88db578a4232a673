"""Memory of another process that the virtual device opens by its handle, as CUDA does.

It can be copied from and to as long as it is open, which it may be several times at once: then
each opening has the same address. A test makes it, looks into it, and ends its process.
"""

from __future__ import annotations

import itertools
from hashlib import blake2b

import numpy as np

from headrace.device.base import ALIGNMENT_BYTES, DevicePtr
from headrace.device.sim_memory import FRESH, SimBuffer, SimMemory
from headrace.errors import DeviceError

HANDLE_BYTES = 64  # as a cudaIpcMemHandle_t


class SimForeign:
    """What another process has allocated and shares."""

    def __init__(self, number: int, size_bytes: int) -> None:
        padded = np.full(max(size_bytes, 1) + ALIGNMENT_BYTES, FRESH, np.uint8)
        self.address = padded.ctypes.data + -padded.ctypes.data % ALIGNMENT_BYTES
        start = self.address - padded.ctypes.data
        self.array = padded[start : start + size_bytes]  # (size_bytes,) uint8
        self.handle = blake2b(b"%d" % number, digest_size=HANDLE_BYTES).digest()
        self.is_alive = True  # the process; what it shares stays for those that have it open


class SimShared(SimBuffer):
    """One opening of it."""

    def __init__(self, memory: SimMemory, foreign: SimForeign) -> None:
        self.array = foreign.array
        self.address = foreign.address
        self.size_bytes = foreign.array.size
        self.place = "device"
        self.is_closed = False
        self.name = memory.ledger.enter("shared buffer")
        self.ptr = DevicePtr(self.address)
        self._memory = memory
        memory.keep(self)

    def close(self) -> None:
        """Let go of it; a second call does nothing."""
        if not self.is_closed:
            self.is_closed = True
            self._memory.ledger.strike(self.name)
            self._memory.forget(self)


class SimProcesses:
    """The other processes of the machine, as far as they share memory of the virtual device."""

    def __init__(self, memory: SimMemory) -> None:
        self._memory = memory
        self._numbers = itertools.count()
        self._shared: dict[bytes, SimForeign] = {}  # by their handles

    def share_memory(self, size_bytes: int) -> SimForeign:
        """Let one of them share so many bytes, full of `FRESH`."""
        foreign = SimForeign(next(self._numbers), size_bytes)
        self._shared[foreign.handle] = foreign
        return foreign

    def open(self, handle: bytes) -> SimShared:
        """Open what one of them shares.

        Raises:
            DeviceError: There is nothing of this handle.
        """
        if len(handle) != HANDLE_BYTES:
            raise DeviceError(f"the handle has {len(handle)} bytes, expected {HANDLE_BYTES}")
        foreign = self._shared.get(handle)
        if foreign is None or not foreign.is_alive:
            raise DeviceError(
                "no living process shares memory by this handle",
                code=400,
                name="cudaErrorInvalidResourceHandle",
            )
        return SimShared(self._memory, foreign)
