"""What a process and its children have used: CPU seconds and memory, read from /proc."""

from __future__ import annotations

import os
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def _stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat from the state on (the name before it may hold blanks)."""
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()


def tree(pid: int) -> list[int]:
    """`pid` and every living descendant."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                children.setdefault(int(_stat(int(entry.name))[1]), []).append(int(entry.name))
            except (FileNotFoundError, ProcessLookupError):
                continue  # ended while we looked
    found = [pid]
    for parent in found:
        found.extend(children.get(parent, ()))
    return found


def cpu_s(pid: int) -> float:
    """User and system seconds of the tree so far, with the children that ended and were awaited."""
    ticks = 0
    for one in tree(pid):
        try:
            ticks += sum(int(field) for field in _stat(one)[11:15])
        except (FileNotFoundError, ProcessLookupError):
            continue
    return ticks / _TICKS_PER_S


def rss_bytes(pid: int) -> int:
    """Resident memory of the tree; pages shared between its processes count for each."""
    pages = 0
    for one in tree(pid):
        try:
            pages += int(Path(f"/proc/{one}/statm").read_text().split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
    return pages * os.sysconf("SC_PAGE_SIZE")
