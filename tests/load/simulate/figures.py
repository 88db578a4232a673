"""What a run gave: goodput, latencies, batches, drops."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from load.simulate.core import Ending, VirtualCore

UNSETTLED: Final = 0.2  # of a run is not judged: queues start empty


@dataclass(frozen=True)
class Figures:
    """Of the requests that came after the first fifth of a run.

    Attributes:
        offered_per_s: Rows that came.
        good_per_s: Rows that were answered within the target, while requests came: what is left at
            the end counts for nothing.
        good_share: Of the rows that came.
        answered_share: Answered at all, in time or not.
        p50_s: Of the answered; NaN when none was. p99_s alike.
        mean_rows: Of the batches of the whole run.
        batch_rows: Batches of the whole run by their rows.
        drops: Of the whole run, by reason.
        busy_share: Of the time, in which the device computed.
    """

    offered_per_s: float
    good_per_s: float
    good_share: float
    answered_share: float
    p50_s: float
    p99_s: float
    mean_rows: float
    batch_rows: dict[int, int]
    drops: dict[str, int]
    busy_share: float


def figures_of(
    endings: Sequence[Ending], core: VirtualCore, *, duration_s: float, target_s: float
) -> Figures:
    """Judge a run whose arrivals lay within `duration_s`."""
    settled_s = core.begun_s + UNSETTLED * duration_s
    judged = [ending for ending in endings if ending.arrival.at_s >= settled_s]
    judged_s = (1 - UNSETTLED) * duration_s
    offered = sum(ending.arrival.rows for ending in judged)
    answered = [ending for ending in judged if not ending.error]
    good = sum(ending.arrival.rows for ending in answered if ending.latency_s <= target_s)
    good_then = sum(
        ending.arrival.rows
        for ending in endings
        if not ending.error
        and ending.latency_s <= target_s
        and settled_s <= ending.ended_s < core.begun_s + duration_s
    )
    p50_s, p99_s = percentiles(answered)
    batches = core.batch_rows
    return Figures(
        offered_per_s=offered / judged_s,
        good_per_s=good_then / judged_s,
        good_share=good / offered if offered else math.nan,
        answered_share=len(answered) / len(judged) if judged else math.nan,
        p50_s=p50_s,
        p99_s=p99_s,
        mean_rows=sum(rows * count for rows, count in batches.items()) / max(batches.total(), 1),
        batch_rows=dict(sorted(batches.items())),
        drops={reason: count for reason, count in core.metrics.read().drops.items() if count},
        busy_share=core.device.share.busy_s / max(core.device.now - core.begun_s, duration_s),
    )


def percentiles(answered: Sequence[Ending]) -> tuple[float, float]:
    """Return the median and the 99th percentile of latencies; NaN when there are none."""
    if not answered:
        return math.nan, math.nan
    p50_s, p99_s = np.percentile([ending.latency_s for ending in answered], (50, 99))
    return float(p50_s), float(p99_s)


def count_errors(endings: Sequence[Ending], of: Callable[[Ending], bool]) -> Counter[str]:
    """Return how often each error ended one of these."""
    return Counter(ending.error for ending in endings if ending.error and of(ending))
