"""Goodput at three times what a device can do, against the most over all loads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from headrace.engines.batching_spec import BatchingSpec
from load.simulate.core import FREE_HOST, HostCost
from load.simulate.curves import CURVES, ServiceCurve
from load.simulate.figures import Figures
from load.simulate.scenarios import overload
from load.simulate.sweep import SEEDS
from load.simulate.workers import spread

LOADS: Final = (0.85, 1.0, 1.2, 3.0)
NEARLY_BEST: Final = 0.98  # of the best rate: what a size must do to count as the usual one
COSTLY_HOST: Final = HostCost(accept_s=20e-6, refuse_s=60e-6, reply_s=10e-6)
HOSTS: Final[Mapping[str, HostCost]] = {"free": FREE_HOST, "60 us": COSTLY_HOST}
POLICIES: Final[Mapping[str, bool]] = {"at once": False, "target": True}
COLUMNS: Final = (("at once", "free"), ("target", "free"), ("at once", "60 us"))
REFUSALS_US: Final = (0, 10, 20, 40, 60)
SERVICES: Final = (10.0, 2.5)  # a deadline is so many service times


@dataclass(frozen=True, slots=True)
class Shape:
    """A device that requests overload."""

    curve: ServiceCurve
    num_slots: int

    @property
    def service_s(self) -> float:
        """Of the smallest batch that does nearly the most rows a second, alone on the device."""
        best = self.curve.rows_per_s()
        sizes = range(1, self.curve.max_rows + 1)
        usual = min(rows for rows in sizes if rows / self.curve.mean_s(rows) >= NEARLY_BEST * best)
        return self.curve.mean_s(usual)


SHAPES: Final[Mapping[str, Shape]] = {
    "H200, 1 slot": Shape(CURVES["resnet50_h200"], 1),
    "H200, 4 slots": Shape(CURVES["resnet50_h200_streams"], 4),
    "CPU, 2 slots": Shape(CURVES["resnet50_cpu"], 2),
}


@dataclass(frozen=True, slots=True)
class Case:
    """What is overloaded, how, and by how many.

    Attributes:
        services: A deadline is so many service times.
        has_target: The deadline is the model's target as well.
        num_requests: That come at load 1; the more, the less chance decides.
    """

    shape: Shape
    services: float
    has_target: bool
    host: HostCost
    num_requests: int = 2000
    seed: int = 1

    @property
    def deadline_s(self) -> float:
        """From a request's arrival on."""
        return self.services * self.shape.service_s

    def play(self, load: float) -> Figures:
        """Let requests come, `load` times as many as the device can do."""
        curve, num_slots = self.shape.curve, self.shape.num_slots
        target_s = self.deadline_s if self.has_target else 0.0
        return overload(
            curve,
            BatchingSpec(max_rows=curve.max_rows, target_p99_s=target_s),
            load,
            num_slots=num_slots,
            deadline_s=self.deadline_s,
            duration_s=self.num_requests / curve.rows_per_s(num_slots),
            host=self.host,
            seed=self.seed,
        )


def kept(case: Case, loads: Sequence[float] = LOADS) -> float:
    """Return the goodput at the last of these loads over the most at any of them."""
    goods = [case.play(load).good_per_s for load in loads]
    return goods[-1] / max(goods)


def overload_table() -> str:
    """Return what is kept of the goodput of each shape, the least to the most of the seeds."""
    cases = [
        Case(shape, services, POLICIES[policy], HOSTS[host], num_requests=800, seed=seed)
        for shape in SHAPES.values()
        for services in SERVICES
        for policy, host in COLUMNS
        for seed in SEEDS
    ]
    shares = iter(spread(kept, cases))
    lines = [
        "| device | deadline | "
        + " | ".join(f"{policy}, refusals {host}" for policy, host in COLUMNS)
        + " |",
        "| --- | --: |" + " --: |" * len(COLUMNS),
    ]
    for name, shape in SHAPES.items():
        for services in SERVICES:
            cells = [[next(shares) for _ in SEEDS] for _ in COLUMNS]
            text = " | ".join(f"{min(each):.2f} to {max(each):.2f}" for each in cells)
            deadline = f"{services:g} services, {services * shape.service_s * 1e3:.0f} ms"
            lines.append(f"| {name} | {deadline} | {text} |")
    return "\n".join(lines) + "\n"


def refusal_table() -> str:
    """Return the goodput through overload, for what a refusal may cost the host."""
    shape, loads = SHAPES["H200, 1 slot"], (0.5, 0.9, 1.0, 1.2, 1.5, 2.0, 2.5, 3.0)
    asked = [(shape, us, load) for load in loads for us in REFUSALS_US]
    goods = iter(spread(_refused, asked))
    lines = [
        "| load | " + " | ".join(f"{us} us" for us in REFUSALS_US) + " |",
        "| --: |" + " --: |" * len(REFUSALS_US),
    ]
    for load in loads:
        cells = " | ".join(f"{next(goods):,.0f}" for _ in REFUSALS_US)
        lines.append(f"| {load:g} | {cells} |")
    return "\n".join(lines) + "\n"


def _refused(asked: tuple[Shape, int, float]) -> float:
    shape, us, load = asked
    host = replace(COSTLY_HOST, refuse_s=us / 1e6) if us else FREE_HOST
    return (
        Case(shape, SERVICES[0], has_target=False, host=host, num_requests=1500)
        .play(load)
        .good_per_s
    )
