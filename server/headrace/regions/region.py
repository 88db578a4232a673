"""One region: a piece of a file that requests can name, read and written at offsets of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from headrace.errors import RequestError
from headrace.escape import printable
from headrace.regions.file import RegionFile
from headrace.regions.pin import RegionPin

SHOWN_CHARS = 64  # of a region's name, in a text


@dataclass(slots=True, eq=False)
class Region:
    """A piece of shared memory that requests can name."""

    name: str
    file: RegionFile
    offset: int  # in the file, bytes
    size_bytes: int
    alive_at: float  # when it was used, or seen open elsewhere, for the last time
    pin: RegionPin | None = None  # where the device copies it
    num_uses: int = 0
    is_gone: bool = False  # no request can name it any more

    def read_into(self, view: memoryview, offset: int) -> None:
        """Fill `view` with what stands from `offset` of the region on; bounds are checked before.

        Raises:
            RequestError: The memory is shorter than it was.
        """
        with self._named():
            self.file.read_into(view, self.offset + offset)

    def check(self, end: int) -> None:
        """Hold that the memory reaches to `end` of the region.

        Raises:
            RequestError: It is shorter than it was.
        """
        with self._named():
            self.file.check(self.offset + end)

    def write(self, data: memoryview | bytes, offset: int) -> None:
        """Write from `offset` of the region on; bounds are checked before.

        Raises:
            RequestError: The memory is shorter than it was, or there is none for it.
        """
        with self._named():
            self.file.write(data, self.offset + offset)

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Let errors say which region it was: a file does not know what clients call it."""
        try:
            yield
        except RequestError as error:
            raise RequestError(f"{shown(self.name)}: {error}") from None


def shown(name: str) -> str:
    """Return how a text calls a region."""
    return f"shared memory region '{printable(name, SHOWN_CHARS)}'"
