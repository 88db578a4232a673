"""Durations counted in classes that are 1 % wide: constant memory, quantiles within 0.5 %."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

LEAST_S = 1e-6
_GROWTH = 1.01
# Up to an hour; what is longer stands in the last class.
NUM_CLASSES = math.ceil(math.log(3600 / LEAST_S) / math.log(_GROWTH))


def classes_of(values_s: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the class of each duration."""
    above = np.log(np.maximum(values_s, LEAST_S) / LEAST_S) / math.log(_GROWTH)
    return np.minimum(above.astype(np.int64), NUM_CLASSES - 1)


def middle_s(index: NDArray[np.int64] | int) -> NDArray[np.float64]:
    """Return the duration in the middle of a class."""
    return np.asarray(LEAST_S * _GROWTH ** (np.asarray(index) + 0.5))


def quantile_s(counts: NDArray[np.int64], quantile: float) -> float:
    """Return the duration that this part of the counted ones do not exceed; NaN without any.

    Args:
        counts: Of each class, (`NUM_CLASSES`,).
        quantile: From 0 to 1; the value is that of the nearest rank, as in numpy's inverted_cdf.
    """
    cumulative = np.cumsum(counts)
    if not cumulative[-1]:
        return math.nan
    rank = max(1, math.ceil(quantile * int(cumulative[-1]) - 1e-9))
    return float(middle_s(int(np.searchsorted(cumulative, rank))))


class Histogram:
    """Durations, counted; least, greatest and sum are exact."""

    def __init__(self) -> None:
        self.counts = np.zeros(NUM_CLASSES, np.int64)
        self.sum_s = 0.0
        self.min_s = math.inf
        self.max_s = 0.0

    @property
    def count(self) -> int:
        """How many durations were added."""
        return int(self.counts.sum())

    @property
    def mean_s(self) -> float:
        """Their mean; NaN without any."""
        count = self.count
        return self.sum_s / count if count else math.nan

    def add(self, values_s: NDArray[np.float64]) -> None:
        """Count these."""
        if not len(values_s):
            return
        self.counts += np.bincount(classes_of(values_s), minlength=NUM_CLASSES)
        self.sum_s += float(values_s.sum())
        self.min_s = min(self.min_s, float(values_s.min()))
        self.max_s = max(self.max_s, float(values_s.max()))

    def quantiles_s(self, quantiles: Sequence[float]) -> list[float]:
        """Return a duration for each quantile, never outside of what was added."""
        found = (quantile_s(self.counts, quantile) for quantile in quantiles)
        return [min(max(value, self.min_s), self.max_s) for value in found]
