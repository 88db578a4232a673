"""Runs every policy over rising load, all on the same arrivals."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import Final

from load.simulate.arrivals import Arrival, arrivals
from load.simulate.core import HostCost, VirtualCore
from load.simulate.curves import ServiceCurve
from load.simulate.figures import Figures, figures_of
from load.simulate.policies import MAX_QUEUE_SIZE, Policy
from load.simulate.slots import noisy

LOADS: Final = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.5)


@dataclass(frozen=True, slots=True)
class Setting:
    """What all runs of a sweep share.

    Attributes:
        num_slots: Streams that share the device.
        target_s: Within which an answer is good.
        has_deadlines: Clients give up after the target, and say so.
        duration_s: Of the arrivals.
    """

    curve: ServiceCurve
    num_slots: int
    target_s: float
    has_deadlines: bool
    duration_s: float
    seed: int = 1
    host: HostCost = field(default_factory=HostCost)

    @property
    def capacity_per_s(self) -> float:
        """Rows a second at load 1."""
        return self.curve.rows_per_s(self.num_slots)


@dataclass(frozen=True, slots=True)
class Run:
    """One policy at one load."""

    policy: Policy
    process: str
    load: float


def run(setting: Setting, one: Run) -> Figures:
    """Play one run."""
    seed = setting.seed + zlib.crc32(f"{one.process} {one.load}".encode())
    rate = one.load * setting.capacity_per_s
    deadline_s = setting.target_s if setting.has_deadlines else math.inf
    coming = arrivals(one.process, rate, setting.duration_s, seed, deadline_s=deadline_s)
    return serve(setting, one.policy, coming)


def serve(setting: Setting, policy: Policy, coming: Sequence[Arrival]) -> Figures:
    """Play these arrivals and judge them."""
    core = VirtualCore(
        setting.curve,
        policy.batcher,
        draw=noisy(setting.curve, setting.seed),
        num_slots=setting.num_slots,
        host=setting.host,
        max_queue_size=MAX_QUEUE_SIZE,
    )
    endings = core.play(coming)
    figures = figures_of(endings, core, duration_s=setting.duration_s, target_s=setting.target_s)
    core.close()
    return figures


def sweep(
    setting: Setting, policies: Sequence[Policy], processes: Sequence[str], loads: Sequence[float]
) -> dict[Run, Figures]:
    """Play every policy at every load, on all cores of this machine."""
    runs = [
        Run(each, process, load) for process in processes for load in loads for each in policies
    ]
    with ProcessPoolExecutor() as executor:
        figures = executor.map(run, [setting] * len(runs), runs)
        return dict(zip(runs, figures, strict=True))


def beaten(results: dict[Run, Figures], aimed: str) -> Iterator[tuple[Run, float]]:
    """Give each run of the policy `aimed`, and how far it is behind the best other of its load.

    In shares of the offered load; negative where it is ahead.
    """
    for one, figures in results.items():
        if one.policy.name == aimed:
            others = [
                other.good_share
                for run, other in results.items()
                if (run.process, run.load) == (one.process, one.load) and run.policy.name != aimed
            ]
            yield one, max(others) - figures.good_share
