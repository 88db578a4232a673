"""The regions that clients have registered, by name: bounds, quota, use and end of each.

Rules
- A region that is in use when it is unregistered, or given up, is let go of after its last use; its
  name is free at once.
- All regions together, those that are on their way out included, stay within the quota.
- A region whose memory nobody else has open any more is given up: at once when its file has no name
  either, else when it has not been used for the lease. Where the system cannot tell who has it open
  (`RegionMemory.is_shared`), the unnamed goes after the lease, the named when its room is needed.
- Where a GPU copies regions itself, each is pinned when it is registered, or lies in its memory and
  is opened. That takes long, as does the end of any region: neither is done while requests wait for
  the lock, nor by whoever ends a request.
- Regions of files and of device memory have one space of names, and are listed and unregistered
  apart. Who has device memory open cannot be told.
- Any thread may call any method. No clock is read: `now` is in seconds, of any one clock.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from headrace.errors import (
    ExistsError,
    NotFoundError,
    RequestError,
    TooLargeError,
    UnsupportedError,
)
from headrace.regions.device_memory import DeviceMemory
from headrace.regions.file import RegionFile
from headrace.regions.opening import Copier, open_shared, pin_file, take_file
from headrace.regions.part import RegionPart
from headrace.regions.region import Region, shown

log = logging.getLogger(__name__)

MAX_NAME_CHARS = 256


@dataclass(frozen=True, slots=True)
class Quota:
    """What all regions together may be, and how long one is kept that nobody shares any more."""

    max_regions: int = 256
    max_bytes: int = 1 << 30
    lease_s: float = 60.0


class RegionTable:
    """All regions of one server."""

    def __init__(
        self,
        open_file: Callable[[str], RegionFile],
        quota: Quota,
        device: Copier | None = None,
        *,
        on_unused: Callable[[], None] | None = None,
    ) -> None:
        """Start empty.

        Args:
            open_file: Opens what a key stands for, or raises a HeadraceError.
            quota: Of all regions.
            device: That which copies regions itself; None where the host does.
            on_unused: Called when the last request has ended that used a region which is gone, to
                have somebody `let_go`; else that is done when the next one comes or goes.
        """
        self._open_file = open_file
        self._quota = quota
        self._device = device
        self._on_unused = on_unused
        self._registering = threading.Lock()  # taken before the other: so no two names come at once
        self._letting_go = threading.Lock()  # whoever waits for it finds what is gone let go of
        self._lock = threading.Lock()
        self._unused: list[Region] = []  # gone, and still open
        self._regions: dict[str, Region] = {}
        self.num_regions = 0  # those included that are gone and still in use
        self.num_bytes = 0
        self.num_read_bytes = 0
        self.num_written_bytes = 0
        self.num_direct_bytes = 0  # by the device alone, either way

    @property
    def takes_device_memory(self) -> bool:
        """Whether regions can lie in memory of the device."""
        return self._device is not None and self._device.opens_shared

    def register(self, name: str, key: str, offset: int, size_bytes: int, now: float) -> None:
        """Let requests name a piece of a shared memory object.

        Args:
            name: What they will call it.
            key: What the system calls the object.
            offset: Of the piece in it, bytes.
            size_bytes: Of the piece.
            now: Seconds.

        Raises:
            RequestError: Name, key or bounds are wrong.
            ExistsError: The name is taken.
            TooLargeError: It is more than the quota leaves.
            UnavailableError: The process can open no more files.
        """
        with self._registering:
            self._check_room(name, offset, size_bytes, now)
            with self._lock:
                regions, end = self._regions.values(), offset + size_bytes
                file = take_file(self._open_file(key), regions, name, end)
            pin = pin_file(self._device, file, name, offset, size_bytes)
            self._add(Region(name, file, offset, size_bytes, now, pin))

    def register_shared(self, name: str, handle: bytes, size_bytes: int, now: float) -> None:
        """Let requests name the first bytes of device memory that another process shares.

        Args:
            name: What they will call it.
            handle: See `Device.open_shared`.
            size_bytes: How many.
            now: Seconds.

        Raises:
            UnsupportedError: The device opens no such memory.
            RequestError: Name, handle or size are wrong.
            ExistsError: The name is taken.
            TooLargeError: It is more than the quota leaves.
            DeviceError: The device has failed.
        """
        if self._device is None or not self._device.opens_shared:
            raise UnsupportedError(
                f"CUDA {shown(name)} cannot be registered: this server takes system shared memory "
                "alone"
            )
        with self._registering:
            self._check_room(name, 0, size_bytes, now)
            buffer = open_shared(self._device, handle, name, size_bytes)
            self._add(Region(name, DeviceMemory(), 0, size_bytes, now, buffer))

    def unregister(self, name: str, *, on_device: bool = False) -> None:
        """Forget a region of a kind, "" for all of that kind; an unknown one is no error.

        What no request uses is closed when it returns: its owner may free the memory then.
        """
        with self._lock:
            for region in self._of_kind(name, on_device=on_device):
                self._give_up(region)
        self.let_go()

    def listed(self, name: str, *, on_device: bool = False) -> list[Region]:
        """Return the regions of a kind that requests can name, or one of them.

        Raises:
            NotFoundError: There is none of this name and kind.
        """
        with self._lock:
            found = self._of_kind(name, on_device=on_device)
        if name and not found:
            kind = "CUDA " if on_device else ""
            raise NotFoundError(f"{kind}{shown(name)} is not registered")
        return found

    def hold(self, parts: Iterable[RegionPart], now: float) -> list[Region]:
        """Take the region of each part into use, all or none.

        Raises:
            NotFoundError: There is no such region.
            RequestError: A part does not lie within its region.
        """
        with self._lock:
            regions = [self._within(part) for part in parts]
            for region in regions:
                region.num_uses += 1
                region.alive_at = max(region.alive_at, now)
        return regions

    def release(
        self,
        regions: Sequence[Region],
        *,
        num_read_bytes: int = 0,
        num_written_bytes: int = 0,
        num_direct_bytes: int = 0,
    ) -> None:
        """End the use of regions that were held, and count what was copied meanwhile."""
        with self._lock:
            self.num_read_bytes += num_read_bytes
            self.num_written_bytes += num_written_bytes
            self.num_direct_bytes += num_direct_bytes
            for region in regions:
                assert region.num_uses, "a region was released more often than it was held"
                region.num_uses -= 1
                if region.is_gone and not region.num_uses:
                    self._unused.append(region)
            has_unused = bool(self._unused)
        if has_unused and self._on_unused is not None:
            self._on_unused()

    def sweep(self, now: float) -> None:
        """Give up the regions that nobody shares any more; the lock is taken for each alone."""
        for region in list(self._regions.values()):
            with self._lock:
                if not region.is_gone and region.is_forsaken(now, self._quota.lease_s):
                    self._give_up(region)
        self.let_go()

    def let_go(self) -> None:
        """Close regions that are gone; their room is there when it returns, whatever fails."""
        with self._letting_go:
            with self._lock:
                unused, self._unused = self._unused, []
            for region in unused:
                try:
                    region.close()
                except Exception:
                    log.exception("%s could not be closed", shown(region.name))
                with self._lock:
                    self.num_regions -= 1
                    self.num_bytes -= region.size_bytes

    def close(self) -> None:
        """Forget every region; those in use go after their last use."""
        for on_device in (False, True):
            self.unregister("", on_device=on_device)

    def _find(self, name: str) -> Region:
        region = self._regions.get(name)
        if region is None:
            raise NotFoundError(f"{shown(name)} is not registered")
        return region

    def _within(self, part: RegionPart) -> Region:
        region = self._find(part.name)
        if part.offset + part.size_bytes > region.size_bytes:
            raise RequestError(
                f"{part.size_bytes} bytes at offset {part.offset} do not lie within "
                f"{shown(part.name)}, which has {region.size_bytes}"
            )
        return region

    def _of_kind(self, name: str, *, on_device: bool) -> list[Region]:
        named = [self._regions.get(name)] if name else list(self._regions.values())
        return [each for each in named if each is not None and each.is_on_device == on_device]

    def _add(self, region: Region) -> None:
        with self._lock:
            self._regions[region.name] = region
            self.num_regions += 1
            self.num_bytes += region.size_bytes

    def _check_room(self, name: str, offset: int, size_bytes: int, now: float) -> None:
        """Hold that a region may come, and give up others for it that nobody needs.

        What is held until it returns is `_registering`, so that no other comes meanwhile.
        """
        if not 0 < len(name) <= MAX_NAME_CHARS:
            raise RequestError(f"the name of a region has 1 to {MAX_NAME_CHARS} characters")
        if offset < 0 or size_bytes < 1:
            raise RequestError(f"{shown(name)} must have 1 byte or more, from offset 0 or later on")
        self.let_go()
        with self._lock:
            if name in self._regions:
                raise ExistsError(f"{shown(name)} is registered already; unregister it first")
            if self._fits(size_bytes):
                return
            self._make_room(now)
        self.let_go()
        if not self._fits(size_bytes):
            quota = self._quota
            raise TooLargeError(
                f"{shown(name)} has {size_bytes} bytes; clients have registered "
                f"{self.num_regions} of {quota.max_regions} regions, {self.num_bytes} of "
                f"{quota.max_bytes} bytes: unregister what is not needed, or ask the operator for "
                "more (--client-shm-max-regions, --client-shm-max-bytes)"
            )

    def _make_room(self, now: float) -> None:
        lease_s = self._quota.lease_s
        idle = [r for r in self._regions.values() if not r.num_uses]
        for region in sorted(idle, key=lambda each: each.alive_at):
            if region.is_forsaken(now, lease_s) or region.is_doubtful(now, lease_s):
                self._give_up(region)

    def _fits(self, size_bytes: int) -> bool:
        quota = self._quota
        return (
            self.num_regions < quota.max_regions and self.num_bytes + size_bytes <= quota.max_bytes
        )

    def _give_up(self, region: Region) -> None:
        del self._regions[region.name]
        region.is_gone = True
        if not region.num_uses:
            self._unused.append(region)
