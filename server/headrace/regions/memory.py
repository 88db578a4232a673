"""What a region needs of the memory that it lies in, a file's or a GPU's."""

from __future__ import annotations

from typing import Protocol


class RegionMemory(Protocol):
    """Memory that a client shares; offsets are from its begin, in bytes."""

    @property
    def is_on_device(self) -> bool:
        """Whether the device alone can read and write it."""

    @property
    def is_shared(self) -> bool | None:
        """Whether any process but this one has it open; None where nobody can tell."""

    @property
    def is_unlinked(self) -> bool:
        """Whether it has no name any more, so that nobody can open it anew."""

    def read_into(self, view: memoryview, offset: int) -> None:
        """Fill `view` from `offset` on.

        Raises:
            RequestError: It cannot be read.
        """

    def write(self, data: memoryview | bytes, offset: int) -> None:
        """Write `data` from `offset` on.

        Raises:
            RequestError: It cannot be written.
        """

    def check(self, end: int) -> None:
        """Hold that it reaches to `end`.

        Raises:
            RequestError: It does not.
        """

    def close(self) -> None:
        """Let go of it, once for each region that lies in it."""
