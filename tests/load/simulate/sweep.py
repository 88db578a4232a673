"""Runs every policy over rising load, all on the same arrivals, with several seeds."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from load.simulate.arrivals import Arrival, arrivals
from load.simulate.core import HostCost, VirtualCore
from load.simulate.curves import ServiceCurve
from load.simulate.figures import Figures, figures_of
from load.simulate.policies import MAX_QUEUE_SIZE, Policy
from load.simulate.slots import noisy
from load.simulate.workers import spread

LOADS: Final = (0.1, 0.3, 0.6, 0.9, 1.2, 1.5)
SEEDS: Final = (1, 2, 3)
BURST_TARGETS: Final = 2.0  # a mean burst is so many targets long, and the silence twice as long
LONGER: Final = 2.0  # bursts are few, so their runs are so many times as long


@dataclass(frozen=True, slots=True)
class Setting:
    """What all runs of a sweep share.

    Attributes:
        num_slots: Streams that share the device.
        target_s: Within which an answer is good.
        has_deadlines: Clients give up after the target, and say so.
        duration_s: Of steady arrivals.
    """

    curve: ServiceCurve
    num_slots: int
    target_s: float
    has_deadlines: bool
    duration_s: float
    host: HostCost = field(default_factory=HostCost)

    @property
    def capacity_per_s(self) -> float:
        """Rows a second at load 1."""
        return self.curve.rows_per_s(self.num_slots)

    def lasts_s(self, process: str) -> float:
        """Return how long requests of this process come."""
        return self.duration_s * (LONGER if process == "on/off" else 1.0)


@dataclass(frozen=True, slots=True)
class Run:
    """One policy at one load."""

    policy: Policy
    process: str
    load: float
    seed: int = 1


def run(setting: Setting, one: Run) -> Figures:
    """Play one run; its arrivals are those of every policy."""
    seed = one.seed + zlib.crc32(f"{one.process} {one.load}".encode())
    core = VirtualCore(
        setting.curve,
        one.policy.batcher,
        draw=noisy(setting.curve, one.seed),
        num_slots=setting.num_slots,
        host=setting.host,
        max_queue_size=MAX_QUEUE_SIZE,
    )
    endings = core.play(_coming(setting, one, seed))
    lasts_s = setting.lasts_s(one.process)
    figures = figures_of(endings, core, duration_s=lasts_s, target_s=setting.target_s)
    core.close()
    return figures


def sweep(
    setting: Setting,
    policies: Sequence[Policy],
    processes: Sequence[str],
    loads: Sequence[float],
    seeds: Sequence[int] = SEEDS,
) -> dict[Run, Figures]:
    """Play every policy at every load with every seed, on all cores that this process may use."""
    runs = [
        Run(policy, process, load, seed)
        for process in processes
        for load in loads
        for policy in policies
        for seed in seeds
    ]
    played = {one: replace(one, policy=stand_in(setting, one.policy, policies)) for one in runs}
    longest_first = sorted(
        dict.fromkeys(played.values()), key=lambda one: -one.load * setting.lasts_s(one.process)
    )
    figures = spread(partial(run, setting), longest_first)
    found = dict(zip(longest_first, figures, strict=True))
    return {one: found[played[one]] for one in runs}


def stand_in(setting: Setting, policy: Policy, policies: Sequence[Policy]) -> Policy:
    """Return the first policy whose runs are those of `policy`.

    No delay is kept that would make somebody late, so all that are as long as deadlines are one.
    """
    if not setting.has_deadlines or policy.max_delay_s < setting.target_s:
        return policy
    return next(each for each in policies if each.max_delay_s >= setting.target_s)


def _coming(setting: Setting, one: Run, seed: int) -> list[Arrival]:
    on_s = BURST_TARGETS * setting.target_s
    return arrivals(
        one.process,
        one.load * setting.capacity_per_s,
        setting.lasts_s(one.process),
        seed,
        lengths={"on_s": on_s, "off_s": 2 * on_s} if one.process == "on/off" else {},
        deadline_s=setting.target_s if setting.has_deadlines else math.inf,
    )
