"""What limits a rung: pure, and the rule is written down here.

Three resources can be full: the host (the one thread that stages, enqueues and ends requests), the
copy engines (one for each direction; the busier counts) and compute (time in which at least one
stream computed; on a CPU, the cores' time in runs).

1. The host is asked first: where launches come too slowly, the device waits for them *inside* what
   its events time, so that compute looks full and is not.
2. Then copy or compute, whichever is fuller.
3. What is at least `FULL` busy is the limit. If nothing is, the steps of a request wait for each
   other ("order"): more in flight helps, and the largest share says which step is longest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Resource = Literal["host", "copy", "compute"]
FULL: Final = 0.85
"""Busy enough to be the limit: some percent go to turns between requests at any rate, so that no
resource ever shows 1.0."""


@dataclass(frozen=True, slots=True)
class Shares:
    """How much of the time each resource was busy, 0 to 1."""

    host: float
    copy: float
    compute: float


@dataclass(frozen=True, slots=True)
class Limit:
    """The resource that is the limit; or, if none is full, the one that comes nearest."""

    resource: Resource
    share: float
    is_full: bool

    @property
    def text(self) -> str:
        """Say it in a few words."""
        return f"{self.resource if self.is_full else f'order ({self.resource})'} {self.share:.0%}"


def limit_of(shares: Shares) -> Limit:
    """Apply the rule."""
    device: tuple[tuple[Resource, float], ...] = (
        ("compute", shares.compute),
        ("copy", shares.copy),
    )
    fullest: tuple[Resource, float] = max(device, key=lambda each: each[1])
    if shares.host >= FULL:
        return Limit("host", shares.host, is_full=True)
    if fullest[1] >= FULL:
        return Limit(*fullest, is_full=True)
    everything: tuple[tuple[Resource, float], ...] = (*device, ("host", shares.host))
    return Limit(*max(everything, key=lambda each: each[1]), is_full=False)
