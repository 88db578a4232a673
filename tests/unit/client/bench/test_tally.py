"""From rows to figures: what belongs to a measurement, and what its rates count."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_client.bench.record import DROPPED, NUM_CODES, OK, UNFINISHED, Record, Rows
from headrace_client.bench.summary import CODE_NAMES, Figures, figures
from headrace_client.bench.tally import Tally, step_of

REFUSED = 14  # UNAVAILABLE
LATE = 4  # DEADLINE_EXCEEDED

# due, latency, code, source; sent a tenth of the latency after due
REQUEST = st.tuples(
    st.floats(0, 12),
    st.floats(1e-5, 3),
    st.sampled_from([OK, OK, OK, REFUSED, LATE, DROPPED]),
    st.integers(0, 3),
)


def rows_of(requests: list[tuple[float, float, int, int]]) -> Rows:
    record = Record()
    for due_s, latency_s, code, source in requests:
        record.ended(due_s, due_s + latency_s / 10, due_s + latency_s, code, source)
    rows = record.take()
    assert rows is not None
    return rows


def sum_up(
    requests: list[tuple[float, float, int, int]],
    *,
    deadline_s: float | None = None,
    flooding: int | None = None,
    num_sources: int = 4,
    end_s: float | None = 11.0,
) -> Figures:
    """The figures of what was measured from 1 s to `end_s`."""
    tally = Tally(1.0, end_s, deadline_s, num_sources, is_open=True, step_s=1.0)
    half = len(requests) // 2
    for part in (requests[:half], requests[half:]):
        if part:
            tally.add(rows_of(part))
    return figures(tally, 100.0, flooding)


@given(st.lists(REQUEST, min_size=1, max_size=200))
def test_figures_beside_plain_counting(
    requests: list[tuple[float, float, int, int]],
) -> None:
    """Counts by when a request was due, rates by when it ended, good by both latency and code."""
    seen = sum_up(requests, deadline_s=1.0)
    due = [each for each in requests if 1 <= each[0] < 11]
    ok = [each for each in due if each[2] == OK]
    assert seen.num_due == len(due)
    assert seen.num_ok == len(ok)
    assert seen.num_failed == len(due) - len(ok)
    assert seen.num_good == sum(latency <= 1.0 for _, latency, _, _ in ok)
    ended = [each for each in requests if 1 <= each[0] + each[1] < 11 and each[2] == OK]
    assert seen.throughput_per_s == pytest.approx(len(ended) / 10)
    good = sum(latency <= 1.0 for _, latency, _, _ in ended)
    assert seen.goodput_per_s == pytest.approx(good / 10)
    counts = Counter(CODE_NAMES[code] for _, _, code, _ in due)
    assert seen.codes == dict(counts)
    assert seen.latency.count == len(ok)
    if ok:
        latencies_ms = np.array([latency for _, latency, _, _ in ok]) * 1e3
        expected = np.quantile(latencies_ms, [0.5, 0.99], method="inverted_cdf")
        assert [seen.latency.p50_ms, seen.latency.p99_ms] == pytest.approx(expected, rel=0.006)
        assert seen.service.max_ms == pytest.approx(latencies_ms.max() * 0.9, rel=1e-6)
    assert seen.failing.count == sum(code not in {OK, DROPPED} for _, _, code, _ in due)


@given(st.lists(REQUEST, min_size=1, max_size=200))
def test_the_series_adds_up(requests: list[tuple[float, float, int, int]]) -> None:
    """Step by step the same as the whole."""
    seen = sum_up(requests, deadline_s=0.5)
    series = seen.series
    assert series.time_s == [float(step) for step in range(10)]
    assert sum(series.throughput_per_s) == pytest.approx(10 * seen.throughput_per_s)
    assert sum(series.goodput_per_s) == pytest.approx(10 * seen.goodput_per_s)
    failed = sum(
        1 <= due_s + latency_s < 11 and code != OK for due_s, latency_s, code, _ in requests
    )
    assert sum(map(sum, series.failures_per_s.values())) == pytest.approx(failed)
    assert [p50_ms is None for p50_ms in series.p50_ms] == [
        rate == 0 for rate in series.throughput_per_s
    ]


def test_a_backlog_is_no_throughput() -> None:
    """Twice what a server can do, for 10 s: the half that is answered after the end counts not."""
    requests = [(1 + number / 200, number / 200, OK, 0) for number in range(2000)]
    seen = sum_up(requests)
    assert seen.num_ok == 2000
    assert seen.throughput_per_s == pytest.approx(100, rel=0.01)
    assert seen.latency.max_ms == pytest.approx(9995)


def test_without_an_end() -> None:
    """A run of so many requests is measured until the last of them has ended."""
    requests = [(1 + number / 10, 0.05, OK, 0) for number in range(50)]
    seen = sum_up(requests, end_s=None)
    assert seen.measured_s == pytest.approx(4.95)
    # The last one ends with the measurement.
    assert seen.throughput_per_s == pytest.approx(50 / 4.95)


def test_sources_are_told_apart() -> None:
    """The flooding one, the others together, and the worst of these."""
    requests = [
        *[(2.0, 0.01, OK, 0)] * 90,
        *[(2.0, 0.01, REFUSED, 0)] * 10,
        *[(3.0, 0.02, OK, 1)] * 10,
        *[(3.0, 0.8, OK, 2)] * 9,
        *[(3.0, 0.1, UNFINISHED, 2)],
        *[(3.0, 0.4, OK, 3)] * 10,
    ]
    sources = sum_up(requests, deadline_s=0.5, flooding=0).sources
    assert sources is not None
    assert sources.flooding is not None
    flooding = sources.flooding
    assert (flooding.source, flooding.num_due, flooding.num_lost) == ("0", 100, 10)
    assert flooding.p99_ms == pytest.approx(10, rel=0.006)
    assert (sources.others.num_due, sources.others.num_lost) == (30, 10)
    assert (sources.worst.source, sources.worst.lost_share) == ("2", 1.0)
    assert sources.worst.p99_ms == pytest.approx(800, rel=0.006)
    assert [each.num_due for each in sources.each] == [100, 10, 10, 10]


def test_one_source_is_no_table() -> None:
    """Without --sources there is nothing to compare."""
    assert sum_up([(2.0, 0.1, OK, 0)], num_sources=1).sources is None


def test_nothing_came() -> None:
    """A level in which nothing ended has figures, too."""
    seen = figures(Tally(1.0, 2.0, None, 1, is_open=False), 100.0)
    assert (seen.num_due, seen.throughput_per_s, seen.latency.p99_ms) == (0, 0, None)
    assert seen.series.throughput_per_s == [0]


def test_texts_stay_few() -> None:
    """A server whose every text differs does not fill the report."""
    tally = Tally(0.0, None, None, 1, is_open=False)
    for letter in map(chr, range(200, 400)):
        record = Record()
        record.ended(1.0, 1.0, 2.0, REFUSED, 0)
        record.said(REFUSED, f"no {letter}")
        rows = record.take()
        assert rows is not None
        tally.add(rows)
    failures = figures(tally, 100.0).failures
    assert len(failures) <= 21
    assert sum(failure.count for failure in failures) == 200


@pytest.mark.parametrize(
    ("duration_s", "step_s"), [(2, 0.1), (10, 0.1), (60, 1), (600, 10), (None, 1), (1e6, 300)]
)
def test_steps(duration_s: float | None, step_s: float) -> None:
    """Short runs are shown finely, long ones in steps that one can read."""
    assert step_of(duration_s) == step_s


def test_every_code_has_a_name() -> None:
    """What rows may hold, reports can say."""
    assert sorted(CODE_NAMES) == list(range(NUM_CODES))
