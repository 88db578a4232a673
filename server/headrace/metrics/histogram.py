"""Latency histograms of one model version, one per stage of the request's path."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

STAGES: Final = ("receive", "stage", "queue", "h2d", "execute", "d2h", "reply", "total")
"""The stages of latency in the order in which a request passes them; `total` covers all."""

BUCKETS_S: Final = (
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
)
"""Upper bounds, inclusive, in seconds. Fixed, so that histograms of several servers add up."""

_BOUNDS_S: Final = np.array(BUCKETS_S)
_NUM_BUCKETS: Final = len(BUCKETS_S) + 1  # and +Inf
_ROW: Final = _NUM_BUCKETS + 1  # and a column for what was not measured, dropped after counting
_ROW_STARTS: Final = np.arange(len(STAGES)) * _ROW


class StageHistograms:
    """Counts per stage and bucket; not thread-safe, its owner holds a lock."""

    def __init__(self) -> None:
        self._counts = np.zeros((len(STAGES), _NUM_BUCKETS), dtype=np.int64)
        self._sums_s = np.zeros(len(STAGES))

    def fold(self, seconds: NDArray[np.float64]) -> NDArray[np.float64]:
        """Count durations.

        Args:
            seconds: (n, len(STAGES)) float64; NaN = not measured, counted nowhere.

        Returns:
            The same durations with 0 for what was not measured.
        """
        is_missing = np.isnan(seconds)
        buckets = _BOUNDS_S.searchsorted(
            seconds
        )  # "left": a duration equal to a bound is inside it
        buckets[is_missing] = _NUM_BUCKETS
        counts = np.bincount((buckets + _ROW_STARTS).ravel(), minlength=len(STAGES) * _ROW)
        self._counts += counts.reshape(len(STAGES), _ROW)[:, :_NUM_BUCKETS]
        measured = np.where(is_missing, 0.0, seconds)
        self._sums_s += measured.sum(axis=0)
        return measured

    def cumulative(self) -> list[tuple[list[int], float]]:
        """Return per stage the counts of `le` each bound and +Inf, and the sum in seconds."""
        counts: list[list[int]] = self._counts.cumsum(axis=1).tolist()
        sums_s: list[float] = self._sums_s.tolist()
        return list(zip(counts, sums_s, strict=True))
