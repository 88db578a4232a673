"""How many cores there are, and how busy, as Linux counts it; elsewhere nobody knows."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

_STAT = Path("/proc/stat")


class CoreTimes(NamedTuple):
    """Time of all cores since the start of the machine, in ticks."""

    busy: int
    total: int


def num_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def core_times() -> CoreTimes | None:
    """Read them; None where they cannot be read."""
    try:
        line = _STAT.read_text("ascii").partition("\n")[0]
        # user nice system idle iowait irq softirq steal (guest times stand in user already)
        ticks = [int(field) for field in line.split()[1:9]]
    except (OSError, ValueError):
        return None
    idle = sum(ticks[3:5])
    return CoreTimes(sum(ticks) - idle, sum(ticks))


def busy_share(before: CoreTimes | None, after: CoreTimes | None) -> float | None:
    """Return how busy all cores were in between, 0 to 1."""
    if before is None or after is None or after.total <= before.total:
        return None
    return (after.busy - before.busy) / (after.total - before.total)
