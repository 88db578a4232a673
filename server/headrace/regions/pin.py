"""A region's memory as the copy engines of a GPU see it: mapped and pinned, and never touched here.

Pinned pages stay when their owner cuts the file short: what the GPU copies then goes into pages
that nobody sees, or comes out of them. The CPU looks at none of it: a touch would end the process.
"""

from __future__ import annotations

import ctypes
import mmap
from contextlib import ExitStack
from typing import Protocol

from headrace.device.base import HostPtr, PinnedRange
from headrace.errors import DeviceError


class Pinner(Protocol):
    """What of a device is needed: `Device.pin_host`."""

    def pin_host(self, address: int, size_bytes: int) -> PinnedRange:
        """Pin host memory that is there already."""


class RegionPin:
    """Part of a file in the address space of the process, page-locked."""

    def __init__(self, pinner: Pinner, fd: int, offset: int, size_bytes: int) -> None:
        """Map and pin; takes a millisecond for some megabytes.

        Args:
            pinner: The device that copies.
            fd: Of the file; it may be closed later on.
            offset: Of the part in the file, bytes.
            size_bytes: Of the part.

        Raises:
            DeviceError: It cannot be mapped or pinned.
        """
        start = offset - offset % mmap.ALLOCATIONGRANULARITY
        mapped_bytes = offset + size_bytes - start
        try:
            mapping = mmap.mmap(fd, mapped_bytes, offset=start)
        except (OSError, OverflowError, ValueError) as error:
            raise DeviceError(f"mapping {mapped_bytes} bytes of shared memory: {error}") from error
        with ExitStack() as undo:
            undo.callback(mapping.close)
            exported = ctypes.c_char.from_buffer(mapping)
            address = ctypes.addressof(exported)
            del exported  # or the mapping could not be closed
            self._range = pinner.pin_host(address, mapped_bytes)
            undo.pop_all()
        self._mapping = mapping
        self.ptr = HostPtr(self._range.ptr + offset - start)

    def close(self) -> None:
        """Let go of the memory; a second call does nothing. No copy may be under way."""
        self._range.close()
        self._mapping.close()
