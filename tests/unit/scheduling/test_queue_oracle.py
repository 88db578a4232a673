"""The real queue against the plainest one: the same decisions at the same times, whatever comes."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.engines.batching_spec import BatchingSpec
from headrace.scheduling.dynamic import LEAD_S
from headrace.scheduling.request import Request
from helpers.queue_oracle import QueueOracle
from helpers.queue_rig import KIND, Queue, new_kind

KINDS = (KIND, new_kind(), None)
TICK_S = 0.001  # times are whole ticks; what the configuration names lies between them
DELAYS_S = (0.0, 0.0035, 0.0205)

specs = st.builds(
    BatchingSpec,
    max_rows=st.integers(1, 8),
    preferred_rows=st.sampled_from([(), (2,), (2, 4)]),
    max_delay_s=st.sampled_from(DELAYS_S),
    num_priorities=st.sampled_from([1, 3]),
    default_priority=st.just(2),
)


class Twins(RuleBasedStateMachine):
    """One real queue, one plain one."""

    @initialize(spec=specs)
    def begin(self, spec: BatchingSpec) -> None:
        """Start both empty."""
        sizes = tuple(size for size in spec.preferred_rows if size < spec.max_rows)
        spec = BatchingSpec(
            max_rows=spec.max_rows,
            preferred_rows=sizes,
            max_delay_s=spec.max_delay_s,
            num_priorities=spec.num_priorities,
            default_priority=min(spec.default_priority, spec.num_priorities),
        )
        self.spec = spec
        self.real = Queue(spec)
        self.plain = QueueOracle(spec, LEAD_S)
        self.left: list[Request] = []

    @rule(
        rows=st.integers(1, 8),
        kind=st.sampled_from([0, 0, 0, 1, 2]),
        source=st.sampled_from([None, "a", "b", "c"]),
        priority=st.integers(0, 3),
        times=st.integers(1, 3),
    )
    def add(self, rows: int, kind: int, source: str | None, priority: int, times: int) -> None:
        """Let requests come."""
        for _ in range(times):
            request = self.real.request(
                rows=min(rows, self.spec.max_rows),
                kind=KINDS[kind],
                source=source,
                priority=min(priority, self.spec.num_priorities),
            )
            self.plain.add(request, self.real.now)
            self.real.batcher.add(request, self.real.now)
            self.left.append(request)

    @rule(ticks=st.sampled_from([1, 1, 2, 5, 30, 700]))
    def wait(self, ticks: int) -> None:
        """Let time pass."""
        self.real.now += ticks * TICK_S

    @rule(ticks=st.sampled_from([0, 1, 3, 20]))
    def be_busy(self, ticks: int) -> None:
        """Let every slot be busy for a while from now on."""
        self.real.start = self.real.now + ticks * TICK_S

    @precondition(lambda self: self.left)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        """Let a caller leave, who may have been served already."""
        request = self.left.pop(data.draw(st.integers(0, len(self.left) - 1)))
        assert self.real.batcher.remove(request) == self.plain.remove(request)

    @rule(times=st.sampled_from([1, 1, 20]))
    def run_next(self, times: int) -> None:
        """Ask for what should run, once or until nothing should."""
        for _ in range(times):
            now, start = self.real.now, max(self.real.now, self.real.start)
            batch = self.real.batcher.next_batch(now)
            self.plain.agrees(None if batch is None else batch.requests, start, now)
            if batch is None:
                look = self.real.batcher.next_look(now)
                assert (inf if look is None else look) == self.plain.look_at(start, now)
                return
            assert batch.rows == sum(request.rows for request in batch.requests)
            if batch.layout.kind is not None:
                assert batch.layout is batch.layout.kind.layout(batch.rows)

    @rule()
    def clear(self) -> None:
        """Take all out."""
        assert set(self.real.batcher.clear()) == {entry.request for entry in self.plain.entries}
        for entry in list(self.plain.entries):
            self.plain.remove(entry.request)

    @invariant()
    def is_as_long(self) -> None:
        """As many wait here as there, and nobody was dropped without a reason."""
        if hasattr(self, "real"):
            assert len(self.real.batcher) == len(self.plain.entries)
            assert self.real.batcher.dropped == []


TestTwins = pytest.mark.timeout(120)(Twins.TestCase)
TestTwins.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
