"""How well work overlaps: pure arithmetic on spans of time.

A copy is hidden while another slot computes: then the device does both, and the copy costs nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

COPIES = ("h2d", "d2h")
COMPUTE = "execute"

Interval = tuple[float, float]  # start and end, seconds


class Span(NamedTuple):
    """Something that a slot's lane did."""

    slot: str  # whose: spans of one slot never hide each other
    name: str  # "h2d", "execute" or "d2h"
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Overlap:
    """Seconds of copies, and how many of them ran while another slot computed."""

    copy_s: float
    hidden_s: float
    compute_s: float  # in which at least one slot computed

    @property
    def hidden_share(self) -> float | None:
        """The hidden part of copy time, 0 to 1; None without copies."""
        return self.hidden_s / self.copy_s if self.copy_s > 0 else None


def merged(intervals: Iterable[Interval]) -> list[Interval]:
    """Return the same stretches of time, in order and without overlap; empty ones are left out."""
    result: list[Interval] = []
    for start, end in sorted(intervals):
        if result and start <= result[-1][1]:
            if end > result[-1][1]:
                result[-1] = (result[-1][0], end)
        elif end > start:
            result.append((start, end))
    return result


def total_s(intervals: Iterable[Interval]) -> float:
    """Return the time that at least one of them covers."""
    return sum(end - start for start, end in merged(intervals))


def common_s(one: Sequence[Interval], other: Sequence[Interval]) -> float:
    """Return the time that both cover; each merged."""
    common = 0.0
    i = j = 0
    while i < len(one) and j < len(other):
        common += max(0.0, min(one[i][1], other[j][1]) - max(one[i][0], other[j][0]))
        if one[i][1] < other[j][1]:
            i += 1
        else:
            j += 1
    return common


def overlap(spans: Iterable[Span]) -> Overlap:
    """Say how much of the copy time was hidden behind the compute of other slots.

    Copies of one slot in both directions at once count once; copies of two slots at once count
    twice, because each could be hidden or not.
    """
    copies: defaultdict[str, list[Interval]] = defaultdict(list)
    computes: defaultdict[str, list[Interval]] = defaultdict(list)
    for span in spans:
        if span.name in COPIES:
            copies[span.slot].append((span.start_s, span.end_s))
        elif span.name == COMPUTE:
            computes[span.slot].append((span.start_s, span.end_s))
    copy_s = hidden_s = 0.0
    for slot, intervals in copies.items():
        its_copies = merged(intervals)
        others = merged(each for other, them in computes.items() if other != slot for each in them)
        copy_s += sum(end - start for start, end in its_copies)
        hidden_s += common_s(its_copies, others)
    return Overlap(copy_s, hidden_s, total_s(each for them in computes.values() for each in them))
