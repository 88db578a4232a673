"""A histogram of how many rows ran together, made at each scrape of what is counted anyway."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Final

from prometheus_client.core import HistogramMetricFamily

from headrace.metrics.catalogue import CATALOGUE
from headrace.metrics.statistics import BatchStatistics

NAME: Final = "headrace_batch_rows"
BUCKETS_ROWS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)
"""Upper bounds, inclusive. Fixed, so that histograms of several servers add up."""

_LABELS: Final = (*(str(float(bound)) for bound in BUCKETS_ROWS), "+Inf")


def batch_rows(
    batches: Iterable[tuple[tuple[str, str], Sequence[BatchStatistics]]],
) -> HistogramMetricFamily:
    """Return the family.

    Args:
        batches: (name, version) of each model, and what is known of its batches.
    """
    family = HistogramMetricFamily(NAME, CATALOGUE[NAME].help, labels=("model", "version"))
    for model, by_size in batches:
        counts = [0] * len(_LABELS)
        for batch in by_size:
            counts[bisect_left(BUCKETS_ROWS, batch.batch_size)] += batch.compute_infer.count
        buckets = list(zip(_LABELS, accumulate(counts), strict=True))
        num_rows = sum(batch.batch_size * batch.compute_infer.count for batch in by_size)
        family.add_metric(model, buckets, num_rows)
    return family
