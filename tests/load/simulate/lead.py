"""How far the target is ahead of the other policies, seed by seed: the same arrivals for both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import mean
from typing import Final, NamedTuple

from load.simulate.figures import Figures
from load.simulate.policies import ALONE, TARGET
from load.simulate.sweep import Run

LEAST: Final = 0.001  # of the rows that came: less is no difference

Results = Mapping[Run, Figures]


class Lead(NamedTuple):
    """The share in time under the target, less that under another policy.

    Attributes:
        over: The other policy's name.
        mean: Over the seeds. low, high: The least and the most of them.
    """

    over: str
    mean: float
    low: float
    high: float

    @property
    def is_ahead(self) -> bool:
        """Whether every seed says so, and by more than nothing."""
        return self.low > 0 and self.mean >= LEAST

    @property
    def is_behind(self) -> bool:
        """Whether every seed says so, and by more than nothing."""
        return self.high < 0 and self.mean <= -LEAST


class Cell(NamedTuple):
    """One load of one arrival process, and the fixed delay that does best there, in hindsight."""

    process: str
    load: float
    against: Lead


def shares(results: Results, name: str, process: str, load: float) -> list[float]:
    """Return the share in time of one policy at one load, by seed."""
    return [
        figures.good_share
        for run, figures in results.items()
        if (run.policy.name, run.process, run.load) == (name, process, load)
    ]


def lead(results: Results, over: str, process: str, load: float) -> Lead:
    """Compare the target with another policy at one load."""
    pairs = zip(
        shares(results, TARGET, process, load), shares(results, over, process, load), strict=True
    )
    ahead = [ours - theirs for ours, theirs in pairs]
    return Lead(over, mean(ahead), min(ahead), max(ahead))


def mean_lead(results: Results, over: str, process: str) -> float:
    """Return how far the target is ahead of another policy, in the mean over the loads."""
    return mean(lead(results, over, process, load).mean for load in loads_of(results))


def hardest(results: Results) -> Iterator[Cell]:
    """Give each load of each process with the fixed delay that is hardest to beat there."""
    delays = [name for name in names_of(results) if name not in {ALONE, TARGET}]
    for process in processes_of(results):
        for load in loads_of(results):
            leads = [lead(results, name, process, load) for name in delays]
            yield Cell(process, load, min(leads, key=lambda each: each.mean))


def names_of(results: Results) -> list[str]:
    """Return the policies' names in order."""
    return list(dict.fromkeys(run.policy.name for run in results))


def processes_of(results: Results) -> list[str]:
    """Return the arrival processes in order."""
    return list(dict.fromkeys(run.process for run in results))


def loads_of(results: Results) -> list[float]:
    """Return the loads in order."""
    return list(dict.fromkeys(run.load for run in results))
