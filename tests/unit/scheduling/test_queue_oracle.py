"""The real queue against the plainest one: the same decisions at the same times, whatever comes."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from headrace.engines.batching_spec import BatchingSpec, QueuePolicy
from helpers.queue_twins import Twins

SPEC: dict[str, Sequence[Any]] = {
    "max_rows": (1, 2, 4, 8),
    "preferred_rows": ((), (), (2,), (2, 4)),
    "max_delay_s": (0.0, 0.0035, 0.0205),
    "preserve_ordering": (False, False, False, True),
    "num_priorities": (1, 1, 3),
    "default_priority": (2,),
    "keeps_latest": (False, False, True),
}
POLICY: dict[str, Sequence[Any]] = {
    "max_queue_size": (0, 0, 4),
    "default_timeout_s": (0.0, 0.0, 0.0041, 0.0405),
    "is_delayed": (False, True),
    "may_override": (False, True),
}
REQUEST: dict[str, Sequence[Any]] = {
    "rows": (1, 1, 1, 2, 3, 8),
    "kind": (0, 0, 0, 0, 1, 2),
    "source": (None, "a", "b", "c"),
    "priority": (0, 1, 2, 3),
    "timeout_s": (0.0, 0.0, 0.0025),
    "waited": (0, 0, 10),
}
WAITS = (1, 1, 2, 5, 30, 700, 1500)
BUSY = (0, 1, 3, 20)


def a_spec(choose: Callable[[Sequence[Any]], Any]) -> BatchingSpec:
    """Return a policy of which every part was chosen."""

    def policy() -> QueuePolicy:
        return QueuePolicy(**{name: choose(values) for name, values in POLICY.items()})

    fields = {name: choose(values) for name, values in SPEC.items()}
    return BatchingSpec(**fields, default_policy=policy(), policies={1: policy()})


class AnyHistory(RuleBasedStateMachine):
    """Whatever may happen to a queue."""

    twins: Twins

    @initialize(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        """Start both empty."""
        self.twins = Twins(a_spec(lambda values: data.draw(st.sampled_from(values))))

    @rule(
        request=st.fixed_dictionaries({k: st.sampled_from(v) for k, v in REQUEST.items()}),
        times=st.integers(1, 3),
    )
    def offer(self, request: dict[str, Any], times: int) -> None:
        """Let requests come."""
        for _ in range(times):
            self.twins.offer(**request)

    @rule(ticks=st.sampled_from(WAITS))
    def wait(self, ticks: int) -> None:
        """Let time pass."""
        self.twins.wait(ticks)

    @rule(ticks=st.sampled_from(BUSY))
    def be_busy(self, ticks: int) -> None:
        """Let every slot be busy."""
        self.twins.be_busy(ticks)

    @precondition(lambda self: self.twins.come)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        """Let a caller leave."""
        self.twins.remove(data.draw(st.integers(0, len(self.twins.come) - 1)))

    @rule()
    def run_next(self) -> None:
        """Ask for one batch."""
        self.twins.run()

    @rule()
    def run_all(self) -> None:
        """Ask until nothing should run."""
        while self.twins.run():
            pass

    @rule()
    def expire(self) -> None:
        """Look for what has waited too long."""
        self.twins.expire()

    @rule()
    def clear(self) -> None:
        """Take all out."""
        self.twins.clear()


TestAnyHistory = pytest.mark.timeout(120)(AnyHistory.TestCase)
TestAnyHistory.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", range(8))
def test_long_histories(seed: int) -> None:
    """Crowded queues, in which turns, ages and tags have had time to get apart."""
    rng = random.Random(seed)
    for _ in range(40):
        twins = Twins(a_spec(rng.choice))
        for _ in range(120):
            _happen(twins, rng)


def _happen(twins: Twins, rng: random.Random) -> None:
    """Let one thing happen; more come than run."""
    what = rng.random()
    if what < 0.5:
        twins.offer(**{name: rng.choice(values) for name, values in REQUEST.items()})
    elif what < 0.70:
        twins.run()
    elif what < 0.84:
        twins.wait(rng.choice(WAITS))
    elif what < 0.90:
        twins.be_busy(rng.choice(BUSY))
    elif what < 0.93:
        twins.expire()
    elif what < 0.99 and twins.come:
        twins.remove(rng.randrange(len(twins.come)))
    elif rng.random() < 0.3:
        twins.clear()
