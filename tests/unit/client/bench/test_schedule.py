"""Arrival processes: what is due when, for any number of workers that share a schedule."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_client.bench.schedule import (
    Arrivals,
    Bursts,
    Constant,
    Poisson,
    Replay,
    Schedule,
    source_rates,
    turns,
)

RATES = st.lists(st.floats(0.01, 1e4), min_size=1, max_size=20).map(np.array)
SEEDS = st.integers(0, 2**32)


def constant(rates: np.ndarray, seed: int) -> Constant:
    return Constant(rates, np.random.default_rng(seed).random(len(rates)))


SCHEDULES: st.SearchStrategy[Schedule] = st.one_of(
    st.builds(Poisson, RATES, SEEDS),
    st.builds(constant, RATES, SEEDS),
    st.builds(Bursts, st.builds(Poisson, RATES, SEEDS), st.floats(0.01, 2), st.floats(0, 3)),
    st.builds(
        lambda gaps: Replay(np.cumsum(gaps), np.arange(len(gaps), dtype=np.int32), sum(gaps)),
        st.lists(st.floats(1e-3, 1), min_size=1, max_size=50),
    ),
)


def first(schedule: Schedule, num_batches: int) -> Arrivals:
    """The arrivals of the first batches, one behind the other."""
    batches = [batch for index in range(num_batches) if (batch := schedule.batch(index))]
    times_s, sources = zip(*batches, strict=True)
    return Arrivals(np.concatenate(times_s), np.concatenate(sources))


@given(SCHEDULES)
def test_arrivals_are_in_order(schedule: Schedule) -> None:
    """Time never goes back, within batches and over their borders, and begins at 0 or later."""
    times_s = first(schedule, 4).times_s
    assert (np.diff(times_s) >= -1e-9 * times_s[1:]).all()
    assert (times_s >= 0).all()


@given(SCHEDULES, st.integers(1, 9))
def test_workers_share_a_schedule(schedule: Schedule, num_workers: int) -> None:
    """Whatever their number, together they have each arrival once, and none has many more."""
    for index in range(3):
        batch = schedule.batch(index)
        assert batch is not None
        shares = [batch.share(worker, num_workers, index) for worker in range(num_workers)]
        together = sorted(itertools.chain(*(zip(*share, strict=True) for share in shares)))
        assert together == sorted(zip(*batch, strict=True))
        sizes = [len(share.times_s) for share in shares]
        assert max(sizes) - min(sizes) <= 1


@given(RATES, SEEDS)
def test_constant_sources_are_even(rates: np.ndarray, seed: int) -> None:
    """Every source begins after its phase, and then sends at its interval without a gap."""
    schedule = constant(rates, seed)
    times_s, sources = first(schedule, 3)
    for source, rate in enumerate(rates):
        own = times_s[sources == source] * rate  # in intervals
        assert own == pytest.approx(np.arange(len(own)) + schedule.phases[source], abs=1e-6)
    assert len(times_s) == pytest.approx(3 * 512, abs=len(rates))


def test_poisson_has_its_mean() -> None:
    """Arrivals and those of each source come at their rates: within four standard deviations."""
    rates = np.array([10.0, 200.0, 90.0])
    schedule = Poisson(rates, seed=7)
    assert schedule.rate == 300
    times_s, sources = first(schedule, 400)
    length_s = 400 * 512 / 300
    assert abs(len(times_s) - 300 * length_s) < 4 * np.sqrt(300 * length_s)
    counts = np.bincount(sources)
    assert (abs(counts - rates * length_s) < 4 * np.sqrt(rates * length_s)).all()


def test_poisson_has_no_memory() -> None:
    """Counts of equal times are as scattered as they should be, and know nothing of each other."""
    times_s = first(Poisson(np.array([300.0]), seed=7), 400).times_s
    # Windows that do not fit into batches, so that many lie over a border.
    counts = np.bincount((times_s / 0.7).astype(int))[:-1]
    mean = counts.mean()
    assert counts.var() / mean == pytest.approx(1, abs=4 * np.sqrt(2 / len(counts)))
    neighbours = np.corrcoef(counts[:-1], counts[1:])[0, 1]
    assert abs(neighbours) < 4 / np.sqrt(len(counts))
    gaps_s = np.diff(times_s)
    for longer_than_s in (0.001, 0.003, 0.01):
        share = np.exp(-300 * longer_than_s)
        bound = 4 * np.sqrt(share / len(gaps_s))
        assert (gaps_s > longer_than_s).mean() == pytest.approx(share, abs=bound)


def test_a_seed_fixes_the_arrivals() -> None:
    """The same for the same seed, others for another."""
    one, same, other = (first(Poisson(np.array([5.0]), seed), 2).times_s for seed in (1, 1, 2))
    assert np.array_equal(one, same)
    assert not np.array_equal(one[:100], other[:100])


@given(st.floats(0.01, 5), st.floats(0.01, 5), st.floats(1, 1e4), SEEDS, st.sampled_from([0, 1, 2]))
def test_bursts_keep_to_their_time(
    on_s: float, off_s: float, rate: float, seed: int, kind: int
) -> None:
    """Nothing is due in a pause, and over whole periods the rate is the mean of both."""
    rates = np.array([rate * (on_s + off_s) / on_s])
    schedule = Bursts(Poisson(rates, seed) if kind else Constant(rates, np.zeros(1)), on_s, off_s)
    assert schedule.rate == pytest.approx(rate)
    times_s = first(schedule, 3).times_s
    within_s = times_s % (on_s + off_s)
    tolerance = 1e-9 * (1 + times_s)
    assert ((within_s < on_s + tolerance) | (within_s > on_s + off_s - tolerance)).all()


def test_bursts_hold_what_the_mean_promises() -> None:
    """A burst of a fifth of the time has five times the rate."""
    inner = Constant(np.array([500.0]), np.zeros(1))
    times_s = first(Bursts(inner, on_s=0.2, off_s=0.8), 10).times_s
    counts = np.bincount(times_s.astype(int))
    assert (abs(counts[:-1] - 100) <= 1).all()


@given(st.lists(st.floats(0, 100), min_size=1, max_size=2000), st.booleans())
def test_replay_gives_what_was_written(times: list[float], comes_again: bool) -> None:
    """Every time once, then nothing more; or all of them again, one period later."""
    times_s = np.sort(times)
    sources = np.arange(len(times), dtype=np.int32)
    schedule = Replay(times_s, sources, 101.0 if comes_again else None)
    seen = first(schedule, 12)
    number = len(times)
    assert np.array_equal(seen.times_s[:number], times_s)
    assert np.array_equal(seen.sources[:number], sources)
    if not comes_again:
        assert len(seen.times_s) == number
        assert schedule.batch(12) is None
    else:
        again = seen.times_s[number : 2 * number]
        assert again == pytest.approx(times_s[: len(again)] + 101)


def test_a_flood_comes_on_top() -> None:
    """One source sends more; the others keep their part of the rate."""
    assert source_rates(100, 4).tolist() == [25, 25, 25, 25]
    assert source_rates(100, 4, flood=(2, 10)).tolist() == [25, 25, 250, 25]


@given(st.integers(2, 30), st.integers(1, 20), st.data())
def test_turns_follow_the_rates(num_sources: int, factor: int, data: st.DataObject) -> None:
    """In a round each source comes once, the flooding one so often, and evenly spread."""
    flooding = data.draw(st.integers(0, num_sources - 1))
    order = turns(source_rates(1.0, num_sources, flood=(flooding, factor)))
    assert len(order) == num_sources - 1 + factor
    counts = np.bincount(order, minlength=num_sources)
    assert counts[flooding] == factor
    assert (np.delete(counts, flooding) == 1).all()
    places = np.flatnonzero(np.array(order) == flooding)
    gaps = np.diff([*places, places[0] + len(order)])
    assert gaps.max() <= num_sources / factor + 2
