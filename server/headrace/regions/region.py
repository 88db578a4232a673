"""One region: memory that requests can name, read and written at offsets of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from headrace.device.base import SharedBuffer
from headrace.errors import RequestError
from headrace.escape import printable
from headrace.regions.memory import RegionMemory
from headrace.regions.pin import RegionPin

SHOWN_CHARS = 64  # of a region's name, in a text


@dataclass(slots=True, eq=False)
class Region:
    """A piece of shared memory that requests can name."""

    name: str
    memory: RegionMemory
    offset: int  # in the memory, bytes
    size_bytes: int
    alive_at: float  # when it was used, or seen open elsewhere, for the last time
    pin: RegionPin | SharedBuffer | None = None  # where the device copies it
    num_uses: int = 0
    is_gone: bool = False  # no request can name it any more

    @property
    def is_on_device(self) -> bool:
        """Whether it lies in a GPU's memory, which the host never touches."""
        return self.memory.is_on_device

    def read_into(self, view: memoryview, offset: int) -> None:
        """Fill `view` with what stands from `offset` of the region on; bounds are checked before.

        Raises:
            RequestError: The memory is shorter than it was, or not the host's.
        """
        with self._named():
            self.memory.read_into(view, self.offset + offset)

    def check(self, end: int) -> None:
        """Hold that the memory reaches to `end` of the region.

        Raises:
            RequestError: It is shorter than it was.
        """
        with self._named():
            self.memory.check(self.offset + end)

    def write(self, data: memoryview | bytes, offset: int) -> None:
        """Write from `offset` of the region on; bounds are checked before.

        Raises:
            RequestError: The memory is shorter than it was, or not the host's, or there is none
                for it.
        """
        with self._named():
            self.memory.write(data, self.offset + offset)

    def is_forsaken(self, now: float, lease_s: float) -> bool:
        """Say whether nobody shares it any more; see the rules in `table.py`."""
        is_shared = self.memory.is_shared
        if self.num_uses or is_shared:
            self.alive_at = now
            return False
        if is_shared is False and self.memory.is_unlinked:
            return True
        has_lease = now - self.alive_at < lease_s
        return not has_lease and (is_shared is False or self.memory.is_unlinked)

    def is_doubtful(self, now: float, lease_s: float) -> bool:
        """Say whether nobody can tell who shares it, and nobody has used it for the lease."""
        return now - self.alive_at >= lease_s and self.memory.is_shared is None

    def close(self) -> None:
        """Let go of its memory, once; takes long, and on a device waits for what has begun."""
        try:
            if self.pin is not None:
                self.pin.close()
        finally:
            self.memory.close()

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Let errors say which region it was: the memory does not know what clients call it."""
        try:
            yield
        except RequestError as error:
            raise RequestError(f"{shown(self.name)}: {error}") from None


def shown(name: str) -> str:
    """Return how a text calls a region."""
    return f"shared memory region '{printable(name, SHOWN_CHARS)}'"
