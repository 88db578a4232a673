"""When requests are due: arrival processes of many sources, pure and the same for a seed.

A schedule is an endless row of batches, in order of time. Any process can make any batch by its
index alone, so that all workers of a run agree on one schedule and each takes its share of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

# Enough that numpy's fixed costs do not count, few enough that making them (some 50 µs) delays no
# request noticeably.
BATCH_ARRIVALS = 512

Seconds = NDArray[np.float64]


class Arrivals(NamedTuple):
    """Requests that are due: seconds since the start, rising, and the source of each."""

    times_s: Seconds
    sources: NDArray[np.int32]

    def share(self, worker: int, num_workers: int, batch: int) -> Arrivals:
        """Return every `num_workers`-th; the worker that gets the first one changes by batch."""
        first = (worker - batch) % num_workers
        return Arrivals(self.times_s[first::num_workers], self.sources[first::num_workers])


class Schedule(Protocol):
    """An arrival process."""

    @property
    def rate(self) -> float:
        """Mean arrivals a second."""

    def batch(self, index: int) -> Arrivals | None:
        """Return the batch of this index, which may be empty; None when none is left."""


def source_rates(
    total: float, num_sources: int, flood: tuple[int, float] | None = None
) -> NDArray[np.float64]:
    """Return each source's rate: equal parts of `total`, one of them times the flood's factor."""
    rates = np.full(num_sources, total / num_sources)
    if flood is not None:
        source, factor = flood
        rates[source] *= factor
    return rates


@dataclass(frozen=True, eq=False)
class Constant:
    """Each source sends at even intervals.

    Args:
        rates: Of each source, (sources,), per second.
        phases: Of each source, (sources,): the part of its interval after which it begins.
    """

    rates: NDArray[np.float64]
    phases: NDArray[np.float64]

    @property
    def rate(self) -> float:
        """Mean arrivals a second."""
        return float(self.rates.sum())

    def batch(self, index: int) -> Arrivals:
        """Return what is due in the window of this index."""
        window_s = BATCH_ARRIVALS / self.rate
        # The same expression on both sides of a border: no arrival is lost or doubled there.
        first = self._num_before(index * window_s)
        counts = self._num_before((index + 1) * window_s) - first
        sources = np.repeat(np.arange(len(self.rates), dtype=np.int32), counts)
        starts = np.cumsum(counts) - counts
        numbers = np.arange(len(sources)) + np.repeat(first - starts, counts)
        times_s = (numbers + self.phases[sources]) / self.rates[sources]
        order = np.argsort(times_s, kind="stable")
        return Arrivals(times_s[order], sources[order])

    def _num_before(self, time_s: float) -> NDArray[np.int64]:
        return np.maximum(np.ceil(time_s * self.rates - self.phases), 0).astype(np.int64)


@dataclass(frozen=True, eq=False)
class Poisson:
    """Each source sends at random, whatever came before.

    Many such sources together are one such process whose arrivals are dealt out by the rates.

    Args:
        rates: Of each source, (sources,), per second.
        seed: The same for the same arrivals.
    """

    rates: NDArray[np.float64]
    seed: int

    @property
    def rate(self) -> float:
        """Mean arrivals a second."""
        return float(self.rates.sum())

    def batch(self, index: int) -> Arrivals:
        """Return what is due in the window of this index: given their number, even in time."""
        window_s = BATCH_ARRIVALS / self.rate
        random = np.random.default_rng((self.seed, index))
        number = int(random.poisson(BATCH_ARRIVALS))
        times_s = (np.sort(random.random(number)) + index) * window_s
        bounds = np.cumsum(self.rates) / self.rate
        sources = np.searchsorted(bounds, random.random(number), side="right")
        return Arrivals(times_s, np.minimum(sources, len(bounds) - 1).astype(np.int32))


@dataclass(frozen=True)
class Bursts:
    """Another process that runs only in bursts, of all sources at once, beginning with one.

    Args:
        inner: The process within the bursts; its time stands still between them.
        on_s: How long a burst lasts.
        off_s: How long nothing is due after it.
    """

    inner: Schedule
    on_s: float
    off_s: float

    @property
    def rate(self) -> float:
        """Mean arrivals a second, over bursts and pauses."""
        return self.inner.rate * self.on_s / (self.on_s + self.off_s)

    def batch(self, index: int) -> Arrivals | None:
        """Return the inner process's batch, with the pauses put in."""
        inner = self.inner.batch(index)
        if inner is None:
            return None
        num_pauses = np.floor(inner.times_s / self.on_s)
        return Arrivals(inner.times_s + num_pauses * self.off_s, inner.sources)


@dataclass(frozen=True, eq=False)
class Replay:
    """Arrivals that were written down.

    Args:
        times_s: Seconds since the start, (arrivals,), rising.
        sources: Of each arrival, (arrivals,).
        period_s: After this all of them come again; None: once only.
    """

    times_s: Seconds
    sources: NDArray[np.int32]
    period_s: float | None = None

    @property
    def rate(self) -> float:
        """Mean arrivals a second."""
        length_s = self.times_s[-1] if self.period_s is None else self.period_s
        return float(len(self.times_s) / length_s) if length_s > 0 else float("inf")

    def batch(self, index: int) -> Arrivals | None:
        """Return the next arrivals of the list."""
        numbers = np.arange(index * BATCH_ARRIVALS, (index + 1) * BATCH_ARRIVALS)
        if self.period_s is None:
            numbers = numbers[numbers < len(self.times_s)]
            if not len(numbers):
                return None
            return Arrivals(self.times_s[numbers], self.sources[numbers])
        turns, places = np.divmod(numbers, len(self.times_s))
        return Arrivals(self.times_s[places] + turns * self.period_s, self.sources[places])


def turns(rates: Sequence[float] | NDArray[Any]) -> tuple[int, ...]:
    """Return sources in turn, each as often as its rate says, for callers in a closed loop.

    The least rate comes once a round, the others to the nearest whole number of times.
    """
    weights = np.maximum(np.rint(np.asarray(rates) / np.min(rates)), 1).astype(np.int64)
    sources = np.repeat(np.arange(len(weights)), weights)
    starts = np.cumsum(weights) - weights
    places = np.arange(len(sources)) - np.repeat(starts, weights)
    phases = (sources + 0.5) / len(weights)
    order = np.argsort((places + phases) / weights[sources], kind="stable")
    return tuple(int(source) for source in sources[order])
