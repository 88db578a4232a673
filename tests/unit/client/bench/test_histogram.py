"""Durations in classes: quantiles beside numpy's own."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_client.bench.histogram import Histogram

QUANTILES = (0.0, 0.5, 0.9, 0.99, 0.999, 1.0)
DURATIONS_S = st.lists(st.floats(1e-6, 3000), min_size=1, max_size=300)


@given(DURATIONS_S)
def test_quantiles_are_those_of_numpy(values: list[float]) -> None:
    """Each within half a class, 0.5 %, of the value that numpy finds."""
    values_s = np.array(values)
    histogram = Histogram()
    histogram.add(values_s)
    expected = np.quantile(values_s, QUANTILES, method="inverted_cdf")
    assert histogram.quantiles_s(QUANTILES) == pytest.approx(expected, rel=0.0051)
    assert histogram.mean_s == pytest.approx(values_s.mean())
    assert (histogram.min_s, histogram.max_s) == (values_s.min(), values_s.max())


@given(st.lists(DURATIONS_S, min_size=1, max_size=5))
def test_parts_add_up(parts: list[list[float]]) -> None:
    """In pieces or at once: the same."""
    pieces, whole = Histogram(), Histogram()
    for part in parts:
        pieces.add(np.array(part))
    whole.add(np.concatenate(parts))
    assert np.array_equal(pieces.counts, whole.counts)
    assert pieces.count == sum(map(len, parts))


def test_what_lies_outside() -> None:
    """Nothing is lost below a microsecond or above an hour; the ends are exact all the same."""
    histogram = Histogram()
    histogram.add(np.array([0.0, 1e5]))
    assert histogram.count == 2
    assert histogram.quantiles_s((0.5, 1.0)) == pytest.approx([1e-6, 3600], rel=0.01)
    assert (histogram.min_s, histogram.max_s) == (0, 1e5)


def test_without_any() -> None:
    """There is no quantile of nothing."""
    histogram = Histogram()
    histogram.add(np.empty(0))
    assert all(map(math.isnan, [histogram.mean_s, *histogram.quantiles_s((0.5, 0.99))]))
