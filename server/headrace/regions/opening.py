"""How what a region lies in is opened: a file, pinned where a device copies it, or device memory.

No text has a key or a handle in it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Protocol

from headrace.device.base import SharedBuffer
from headrace.errors import DeviceError, RequestError
from headrace.regions.file import RegionFile
from headrace.regions.pin import Pinner, RegionPin
from headrace.regions.region import Region, shown

log = logging.getLogger(__name__)


class Copier(Pinner, Protocol):
    """What of a device is needed that copies regions itself."""

    opens_shared: bool

    def open_shared(self, handle: bytes) -> SharedBuffer:
        """Open device memory that another process shares."""


def take_file(file: RegionFile, regions: Iterable[Region], name: str, end: int) -> RegionFile:
    """Return a file that was opened just now, or the same one if a region lies in it already.

    A second descriptor of ours would seem to be another process's. The file, or what was held of
    the other one, is closed when this raises.

    Args:
        file: It.
        regions: Those that there are.
        name: Of the region that is to lie in it.
        end: Of that region in the file.

    Raises:
        RequestError: The file ends before.
    """
    for region in regions:
        other = region.memory
        if isinstance(other, RegionFile) and other.identity == file.identity:
            file.close()
            file = other.share()
            break
    if end > file.size_bytes:
        file.close()
        raise RequestError(
            f"{shown(name)} would end at byte {end}, behind the end of its shared memory"
        )
    return file


def pin_file(
    device: Pinner | None, file: RegionFile, name: str, offset: int, size_bytes: int
) -> RegionPin | None:
    """Pin a region; None where the host copies, as it does where pinning fails."""
    if device is None:
        return None
    try:
        return RegionPin(device, file.fd, offset, size_bytes)
    except DeviceError as error:
        log.warning("%s is copied by the host: %s", shown(name), error)
        return None


def open_shared(device: Copier, handle: bytes, name: str, size_bytes: int) -> SharedBuffer:
    """Open device memory of which a region shall have so many bytes.

    Raises:
        RequestError: It cannot be opened, or has less.
        DeviceError: The device has failed.
    """
    try:
        buffer = device.open_shared(handle)
    except DeviceError as error:
        if error.sticky:
            raise
        raise RequestError(f"{shown(name)}: {error}") from None
    if size_bytes > buffer.size_bytes:
        has_bytes = buffer.size_bytes
        buffer.close()
        raise RequestError(
            f"{shown(name)} would end at byte {size_bytes}, behind the end of its shared memory, "
            f"which has {has_bytes}"
        )
    return buffer
