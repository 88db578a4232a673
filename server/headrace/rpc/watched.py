"""Tells whether files have changed, also behind symbolic links that were swapped (Kubernetes)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

Fingerprint = tuple[tuple[int, ...] | None, ...]


def fingerprint(paths: Iterable[Path]) -> Fingerprint:
    """Return what differs when a file was written, replaced, removed or linked elsewhere.

    Links are followed: the file behind another link has another inode. Takes 2 us a file.
    """
    return tuple(_of(path) for path in paths)


def _of(path: Path) -> tuple[int, ...] | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns
