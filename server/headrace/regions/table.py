"""The regions that clients have registered, by name: bounds, quota, use and end of each.

Rules
- A region that is in use when it is unregistered, or given up, is let go of after its last use; its
  name is free at once.
- All regions together, those that are on their way out included, stay within the quota.
- A region whose memory nobody else has open any more is given up: at once when its file has no name
  either, else when it has not been used for the lease. Where the system cannot tell who has it open
  (`RegionFile.is_shared`), the unnamed goes after the lease, the named when its room is needed.
- Where a GPU copies regions itself, each is pinned when it is registered. That takes long, as does
  the end of it: neither is done while requests wait for the lock, nor by whoever ends a request.
- Any thread may call any method. No clock is read: `now` is in seconds, of any one clock.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from headrace.errors import DeviceError, ExistsError, NotFoundError, RequestError, TooLargeError
from headrace.regions.file import RegionFile
from headrace.regions.part import RegionPart
from headrace.regions.pin import Pinner, RegionPin
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
        pinner: Pinner | None = None,
    ) -> None:
        """Start empty.

        Args:
            open_file: Opens what a key stands for, or raises a HeadraceError.
            quota: Of all regions.
            pinner: The device that copies regions itself; None where the host does.
        """
        self._open_file = open_file
        self._quota = quota
        self._pinner = pinner
        self._registering = threading.Lock()  # taken before the other: so no two names come at once
        self._lock = threading.Lock()
        self._unused: list[Region] = []  # gone, and still pinned
        self._regions: dict[str, Region] = {}
        self.num_regions = 0  # those included that are gone and still in use
        self.num_bytes = 0
        self.num_read_bytes = 0
        self.num_written_bytes = 0
        self.num_direct_bytes = 0  # by the device alone, either way

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
        if not 0 < len(name) <= MAX_NAME_CHARS:
            raise RequestError(f"the name of a region has 1 to {MAX_NAME_CHARS} characters")
        if offset < 0 or size_bytes < 1:
            raise RequestError(f"{shown(name)} must have 1 byte or more, from offset 0 or later on")
        with self._registering:
            self._unpin()
            with self._lock:
                if name in self._regions:
                    raise ExistsError(f"{shown(name)} is registered already; unregister it first")
                self._make_room(name, size_bytes, now)
                file = self._opened(name, key, offset + size_bytes)
            pin = self._pinned(name, file, offset, size_bytes)
            with self._lock:
                self._regions[name] = Region(name, file, offset, size_bytes, now, pin)
                self.num_regions += 1
                self.num_bytes += size_bytes

    def unregister(self, name: str) -> None:
        """Forget a region, "" for all of them; an unknown one is no error."""
        with self._lock:
            for region in [self._regions.get(name)] if name else list(self._regions.values()):
                if region is not None:
                    self._give_up(region)

    def listed(self, name: str) -> list[Region]:
        """Return the regions that requests can name, or one of them.

        Raises:
            NotFoundError: There is none of this name.
        """
        with self._lock:
            return [self._find(name)] if name else list(self._regions.values())

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
                    self._close(region)

    def sweep(self, now: float) -> None:
        """Give up the regions that nobody shares any more; the lock is taken for each alone."""
        for region in list(self._regions.values()):
            with self._lock:
                if not region.is_gone and self._is_forsaken(region, now):
                    self._give_up(region)
        self._unpin()

    def close(self) -> None:
        """Forget every region; those in use go after their last use."""
        self.unregister("")
        self._unpin()

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

    def _opened(self, name: str, key: str, end: int) -> RegionFile:
        """Open a file, or use it that is open already: it would seem to be open elsewhere."""
        file = self._open_file(key)
        for region in self._regions.values():
            if region.file.identity == file.identity:
                file.close()
                file = region.file.share()
                break
        if end > file.size_bytes:
            file.close()
            raise RequestError(
                f"{shown(name)} would end at byte {end}, behind the end of its shared memory"
            )
        return file

    def _pinned(
        self, name: str, file: RegionFile, offset: int, size_bytes: int
    ) -> RegionPin | None:
        """Pin a region; where that fails, the host copies."""
        if self._pinner is None:
            return None
        try:
            return RegionPin(self._pinner, file.fd, offset, size_bytes)
        except DeviceError as error:
            log.warning("%s is copied by the host: %s", shown(name), error)
            return None

    def _unpin(self) -> None:
        """Let go of the memory of regions that are gone."""
        with self._lock:
            unused, self._unused = self._unused, []
        for region in unused:
            assert region.pin is not None
            region.pin.close()
        with self._lock:
            for region in unused:
                self._forget(region)

    def _make_room(self, name: str, size_bytes: int, now: float) -> None:
        if self._fits(size_bytes):
            return
        idle = [r for r in self._regions.values() if not r.num_uses]
        for region in sorted(idle, key=lambda each: each.alive_at):
            if self._is_forsaken(region, now) or self._is_doubtful(region, now):
                self._give_up(region)
        if not self._fits(size_bytes):
            quota = self._quota
            raise TooLargeError(
                f"{shown(name)} has {size_bytes} bytes; clients have registered "
                f"{self.num_regions} of {quota.max_regions} regions, {self.num_bytes} of "
                f"{quota.max_bytes} bytes: unregister what is not needed, or ask the operator for "
                "more (--client-shm-max-regions, --client-shm-max-bytes)"
            )

    def _fits(self, size_bytes: int) -> bool:
        quota = self._quota
        return (
            self.num_regions < quota.max_regions and self.num_bytes + size_bytes <= quota.max_bytes
        )

    def _is_forsaken(self, region: Region, now: float) -> bool:
        is_shared = region.file.is_shared
        if region.num_uses or is_shared:
            region.alive_at = now
            return False
        if is_shared is False and region.file.is_unlinked:
            return True
        has_lease = now - region.alive_at < self._quota.lease_s
        return not has_lease and (is_shared is False or region.file.is_unlinked)

    def _is_doubtful(self, region: Region, now: float) -> bool:
        return now - region.alive_at >= self._quota.lease_s and region.file.is_shared is None

    def _give_up(self, region: Region) -> None:
        del self._regions[region.name]
        region.is_gone = True
        if not region.num_uses:
            self._close(region)

    def _close(self, region: Region) -> None:
        if region.pin is None:
            self._forget(region)
        else:
            self._unused.append(region)

    def _forget(self, region: Region) -> None:
        region.file.close()
        self.num_regions -= 1
        self.num_bytes -= region.size_bytes
