"""What always holds of the whole core: random traffic, policies and misfortunes, virtual time."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.engines.batching_spec import BatchingSpec, QueuePolicy
from headrace.errors import EngineError
from headrace.scheduling.dynamic import DynamicBatcher
from headrace.scheduling.request import RequestState
from helpers.wild_batcher import WildBatcher
from load.simulate.arrivals import Arrival
from load.simulate.core import Ending, MakeBatcher, VirtualCore
from load.simulate.curves import ServiceCurve

MAX_ROWS = 8
CURVE = ServiceCurve("curve", ((1, 1e-3), (MAX_ROWS, 3e-3)), max_rows=MAX_ROWS)
PADDED = ServiceCurve("padded", CURVE.points, max_rows=MAX_ROWS, sizes=(1, 4, 8))
TINY_BYTES = 3 * 4096  # so few blocks that most requests wait for one
EPSILON_S = 1e-9

times = st.integers(0, 40).map(lambda ticks: ticks * 0.5e-3)
arrivals = st.lists(
    st.builds(
        Arrival,
        at_s=times,
        source=st.sampled_from([None, None, "a", "b"]),
        rows=st.integers(1, MAX_ROWS),
        priority=st.integers(0, 3),
        kind=st.sampled_from([0, 0, 0, 1, -1]),
        deadline_s=st.sampled_from([math.inf, math.inf, 0.002, 0.006, 0.03]),
        timeout_s=st.sampled_from([0.0, 0.0, 0.0033]),
        cancelled_s=st.sampled_from([math.inf] * 4 + [0.0, 0.0017, 0.004]),
    ),
    min_size=1,
    max_size=40,
).map(lambda each: sorted(each, key=lambda arrival: arrival.at_s))

policies = st.builds(
    QueuePolicy,
    default_timeout_s=st.sampled_from([0.0, 0.0041]),
    is_delayed=st.booleans(),
    may_override=st.booleans(),
)
specs = st.builds(
    BatchingSpec,
    max_rows=st.just(MAX_ROWS),
    preferred_rows=st.sampled_from([(), (2, 4)]),
    max_delay_s=st.sampled_from([0.0, 0.0012, 0.0101]),
    preserve_ordering=st.booleans(),
    num_priorities=st.sampled_from([1, 3]),
    default_priority=st.just(1),
    default_policy=policies,
    target_p99_s=st.sampled_from([0.0, 0.0, 0.004, 0.02]),
    keeps_latest=st.booleans(),
)


@dataclass(frozen=True)
class Misfortune:
    """What goes wrong: launches that fail, by their number; a slot that hangs; the end of all."""

    failing: tuple[int, ...] = ()
    dies_s: float = math.inf
    closes_s: float = math.inf


misfortunes = st.builds(
    Misfortune,
    failing=st.lists(st.integers(0, 10), max_size=2).map(tuple),
    dies_s=st.sampled_from([math.inf] * 5 + [0.0033, 0.0081]),
    closes_s=st.sampled_from([math.inf] * 5 + [0.005, 0.0121]),
)


class Watched:
    """A core that is looked at after each of its steps."""

    def __init__(
        self,
        spec: BatchingSpec,
        curve: ServiceCurve,
        make: MakeBatcher | None = None,
        **options: Any,
    ) -> None:
        self.spec = spec
        self.checks_deadlines = make is None
        self.core = VirtualCore(
            curve,
            make
            or (
                lambda pool, capacity: DynamicBatcher(
                    spec, capacity, pool.starts_at, 64, num_busy=pool.num_busy
                )
            ),
            num_kinds=2,
            has_order=spec.preserve_ordering,
            **options,
        )
        if make is None:
            self.core.checks.append(self._nobody_waits_beside_an_idle_slot)

    def play(self, coming: Sequence[Arrival], misfortune: Misfortune) -> list[Ending]:
        """Play a run in which this goes wrong."""
        core, device = self.core, self.core.device
        for number in misfortune.failing:
            device.fail_launch(EngineError("no"), after=number, is_refused=True)
        if misfortune.dies_s < math.inf:
            core.at(misfortune.dies_s, device.fail_device)
        if misfortune.closes_s < math.inf:
            core.at(misfortune.closes_s, core.scheduler.close)
        return core.play(coming)

    def _nobody_waits_beside_an_idle_slot(self) -> None:
        """No longer than the queue's delay; a target may have its reasons."""
        core, now = self.core, self.core.clock()
        if self.spec.target_p99_s or all(slot.in_flight for slot in core.slots):
            return
        for request in core.requests:
            if request.state is RequestState.QUEUED:
                waited_s = now - request.staged_at
                assert waited_s <= self.spec.max_delay_s + EPSILON_S, f"{waited_s} s"

    def hold(self, endings: Sequence[Ending]) -> None:
        """Hold what is true of every batch and every ending."""
        for bound in self.core.log:
            batch = bound.batch
            kinds = {request.layout.kind for request in batch.requests}
            assert len(kinds) == 1
            assert kinds != {None} or len(batch.requests) == 1
            assert batch.rows == sum(request.rows for request in batch.requests)
            assert batch.rows <= self.spec.max_rows
            for request in batch.requests if self.checks_deadlines else ():
                assert request.deadline is None or bound.at_s < request.deadline
        ran = [id(request) for bound in self.core.log for request in bound.batch.requests]
        assert len(ran) == len(set(ran)), "a request ran twice"
        if self.spec.preserve_ordering:
            answered = [ending.place for ending in endings if not ending.error]
            assert answered == sorted(answered), "replies overtook each other"


@pytest.mark.timeout(120)
@given(arrivals, specs, misfortunes, st.sampled_from([CURVE, PADDED]), st.data())
@settings(max_examples=150, deadline=None)
def test_whatever_comes_every_request_ends_once_and_every_block_comes_back(
    coming: Sequence[Arrival],
    spec: BatchingSpec,
    misfortune: Misfortune,
    curve: ServiceCurve,
    data: st.DataObject,
) -> None:
    """Never over the rows, never mixed, never late when a slot is idle, each with its own data."""
    watched = Watched(
        spec,
        curve,
        num_slots=data.draw(st.integers(1, 3)),
        max_queue_size=data.draw(st.sampled_from([3, 1000])),
        budget_bytes=data.draw(st.sampled_from([TINY_BYTES, 1 << 20])),
    )
    endings = watched.play(coming, misfortune)
    watched.hold(endings)
    if not watched.core.device.is_dead:
        assert watched.core.blocks.num_leased == 0
        watched.core.close()


@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", range(6))
def test_the_core_bears_any_policy(seed: int) -> None:
    """Whatever a batcher refuses, displaces, supersedes or drops: one end each, no block lost."""
    rng = random.Random(seed)
    for _ in range(80):
        has_order, wild_seed = rng.random() < 0.4, rng.random()
        watched = Watched(
            BatchingSpec(max_rows=MAX_ROWS, preserve_ordering=has_order),
            CURVE,
            lambda *_, wild_seed=wild_seed: WildBatcher(wild_seed, MAX_ROWS),
            num_slots=rng.randint(1, 3),
            max_queue_size=rng.choice([3, 1000]),
            budget_bytes=rng.choice([TINY_BYTES, 1 << 20]),
        )
        watched.hold(watched.play(*_crowd(rng)))
        if not watched.core.device.is_dead:
            assert watched.core.blocks.num_leased == 0
            watched.core.close()


def _crowd(rng: random.Random) -> tuple[list[Arrival], Misfortune]:
    """Return requests that come close together, and what goes wrong."""
    span = rng.choice([2, 6, 30])
    coming = [
        Arrival(
            rng.randint(0, span) * 0.5e-3,
            source=rng.choice([None, "a", "b"]),
            rows=rng.choice([1, 1, 2, MAX_ROWS]),
            priority=rng.randint(0, 3),
            kind=rng.choice([0, 0, 0, 1, -1]),
            deadline_s=rng.choice([math.inf, math.inf, 0.002, 0.006, 0.03]),
            cancelled_s=rng.choice([math.inf] * 3 + [0.0, 0.0017, 0.004]),
        )
        for _ in range(rng.randint(1, 25))
    ]
    misfortune = Misfortune(
        failing=tuple(rng.sample(range(8), rng.choice([0, 0, 1]))),
        dies_s=rng.choice([math.inf] * 6 + [0.0033, 0.0081]),
        closes_s=rng.choice([math.inf] * 4 + [0.001, 0.003, 0.0121]),
    )
    return sorted(coming, key=lambda arrival: arrival.at_s), misfortune
