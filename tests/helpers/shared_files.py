"""Shared memory objects in a test's own folder, and a table of regions over them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from headrace.regions.file import RegionFile, open_file
from headrace.regions.key import file_name
from headrace.regions.opening import Copier
from headrace.regions.table import Quota, RegionTable


class SharedFiles:
    """A folder as /dev/shm is one.

    Attributes:
        opened: The files that were opened through it, in order.
    """

    def __init__(self, folder: Path, prefixes: Sequence[str] = ()) -> None:
        self.folder = folder
        self.prefixes = prefixes
        self.opened: list[RegionFile] = []

    def make(self, key: str, data: bytes) -> Path:
        """Create an object and let go of it: no process has it open."""
        path = self.folder / key
        path.write_bytes(data)
        return path

    def open(self, key: str) -> RegionFile:
        """As a server of this user opens it."""
        file = open_file(file_name(key, self.prefixes), {os.geteuid()}, folder=self.folder)
        self.opened.append(file)
        return file

    def table(self, device: Copier | None = None, **quota: float) -> RegionTable:
        """A table whose regions lie here, or in memory of `device`, which then copies them.

        Without a device, what has become unused is let go of at once, as a server's thread does.
        """

        def let_go() -> None:
            if device is None:
                table.let_go()

        bounds = Quota(**quota)  # type: ignore[arg-type]
        table = RegionTable(self.open, bounds, device, on_unused=let_go)
        return table


def is_open(file: RegionFile) -> bool:
    """Whether its descriptor is."""
    try:
        return file.size_bytes >= 0
    except OSError:
        return False
