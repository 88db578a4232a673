"""What the ladder recommends for hand-made figures."""

from __future__ import annotations

from headrace.ladder.advice import advise
from headrace.ladder.figures import Figures, Result
from headrace.ladder.limits import Shares
from headrace.ladder.rungs import Rung


def result(rung: Rung, rows_per_s: float, p99_s: float) -> Result:
    shares = Shares(host=0.1, copy=0.1, compute=0.95)
    return Result(rung, Figures(1.0, 100, rows_per_s, p99_s / 2, p99_s, 1e-5, shares))


SYNC = Rung(1, 1, 1, is_synchronous=True)
FOUR = Rung(4, 2, 1)
EIGHT = Rung(8, 2, 1)
FOUR_GRAPHS = Rung(4, 2, 1, has_graphs=True)


def test_the_smallest_near_the_best() -> None:
    """Four streams at 96 % of eight are enough; p99 is another question."""
    advice = advise([result(SYNC, 100, 0.002), result(FOUR, 960, 0.01), result(EIGHT, 1000, 0.02)])
    assert advice is not None
    assert advice.throughput.rung == FOUR
    assert "96% of the best (8 streams)" in advice.throughput.reason
    assert "compute 95%" in advice.throughput.reason
    assert advice.throughput.settings == "slots 4, graphs off, batch 1"
    assert advice.latency.rung == SYNC
    assert "10% of the best" in advice.latency.reason


def test_the_best_when_nothing_smaller_comes_near() -> None:
    """At 94 % it is not near any more."""
    advice = advise([result(FOUR, 940, 0.01), result(EIGHT, 1000, 0.02)])
    assert advice is not None
    assert advice.throughput.rung == EIGHT
    assert advice.throughput.reason.startswith("the best throughput, 1,000 rows/s")


def test_graphs_only_where_they_are_worth_it() -> None:
    """Of two that do the same, the one without graphs is smaller."""
    even = advise([result(FOUR, 990, 0.01), result(FOUR_GRAPHS, 1000, 0.01)])
    assert even is not None
    assert even.throughput.rung == FOUR
    ahead = advise([result(FOUR, 500, 0.01), result(FOUR_GRAPHS, 1000, 0.01)])
    assert ahead is not None
    assert ahead.throughput.settings == "slots 4, graphs on, batch 1"


def test_a_batch_must_earn_its_rows() -> None:
    """More rows a request are taken only for more than 5 %."""
    batch = Rung(1, 2, 32, is_batch=True)
    even = advise([result(EIGHT, 960, 0.01), result(batch, 1000, 0.01)])
    assert even is not None
    assert even.throughput.rung == EIGHT


def test_nothing_measured_nothing_advised() -> None:
    """Rungs that failed are passed over."""
    failed = Result(FOUR, None, "no memory")
    assert advise([failed]) is None
    advice = advise([failed, result(SYNC, 1, 1.0)])
    assert advice is not None
    assert advice.throughput.rung == advice.latency.rung == SYNC
