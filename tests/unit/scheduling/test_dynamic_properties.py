"""What holds of the queue whatever comes, under any policy that there is."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.engines.batching_spec import BatchingSpec, QueuePolicy
from headrace.scheduling.dynamic import LEAD_S
from headrace.scheduling.request import Request
from headrace.slots.capacity import Capacity
from helpers.queue_rig import KIND, Queue, known, new_kind

KINDS = (KIND, KIND, KIND, new_kind(), None)
TICK_S = 0.001

specs = st.builds(
    BatchingSpec,
    max_rows=st.sampled_from([1, 3, 8]),
    preferred_rows=st.sampled_from([(), (2,)]),
    max_delay_s=st.sampled_from([0.0, 0.004]),
    preserve_ordering=st.booleans(),
    num_priorities=st.sampled_from([1, 3]),
    default_priority=st.just(1),
    default_policy=st.builds(
        QueuePolicy,
        default_timeout_s=st.sampled_from([0.0, 0.010]),
        is_delayed=st.booleans(),
        may_override=st.booleans(),
    ),
    target_p99_s=st.sampled_from([0.0, 0.0, 0.015]),
    keeps_latest=st.booleans(),
)
comings = st.tuples(
    st.just("come"),
    st.fixed_dictionaries(
        {
            "rows": st.integers(1, 3),
            "kind": st.sampled_from(KINDS),
            "source": st.sampled_from([None, None, "a", "b", "c"]),
            "priority": st.integers(0, 3),
            "timeout_s": st.sampled_from([0.0, 0.003]),
            "deadline_s": st.sampled_from([None, None, 0.002, 0.008, 0.050]),
        }
    ),
)
others = st.tuples(
    st.sampled_from(["wait", "busy", "run", "run", "run", "leave", "expire", "displace", "clear"]),
    st.integers(0, 8),
)
happenings = st.lists(st.one_of(comings, comings, others), max_size=80)
knowledge = st.sampled_from([(), ((1, 0.002), (8, 0.006)), ((1, 0.004), (3, 0.012))])


class Watched:
    """A queue, and a count of how each request left it."""

    def __init__(self, spec: BatchingSpec, capacity: Capacity) -> None:
        preferred = tuple(size for size in spec.preferred_rows if size < spec.max_rows)
        self.spec = replace(spec, preferred_rows=preferred)
        if spec.preserve_ordering:
            self.spec = replace(self.spec, num_priorities=1)
        self.queue = Queue(self.spec, capacity)
        self.ends: dict[Request, list[str]] = {}
        self.come: list[Request] = []

    def happen(self, what: str, how: object) -> None:
        """Let one thing happen."""
        queue = self.queue
        if isinstance(how, dict):
            rows = 1 if how["kind"] is None else min(how["rows"], self.spec.max_rows)
            priority = min(how["priority"], self.spec.num_priorities)
            request = queue.request(**{**how, "rows": rows, "priority": priority})
            if queue.batcher.refuse(request, queue.now) is None:
                self.ends[request] = []
                self.come.append(request)
                queue.batcher.add(request, queue.now)
        elif what == "wait":
            assert isinstance(how, int)
            queue.now += how * TICK_S
        elif what == "busy":
            assert isinstance(how, int)
            queue.num_busy, queue.start = how % 3, queue.now + how * TICK_S if how > 4 else 0.0
        elif what == "leave" and self.come:
            assert isinstance(how, int)
            request = self.come[how % len(self.come)]
            was_in = not self.ends[request]
            assert queue.batcher.remove(request) == was_in
            if was_in:
                self.ends[request].append("left")
        elif what == "displace":
            drop = queue.batcher.displace(queue.request(source="d"))
            if drop is not None:
                self.ends[drop.request].append("displaced")
        else:
            self._take(what)
        self.collect()

    def _take(self, what: str) -> None:
        queue = self.queue
        if what == "run":
            while (batch := queue.batcher.next_batch(queue.now)) is not None:
                requests = batch.requests
                assert requests, "a batch of nobody"
                assert batch.rows == sum(request.rows for request in requests)
                assert batch.rows <= self.spec.max_rows or len(requests) == 1
                (kind,) = {request.layout.kind for request in requests}
                assert kind is not None or len(requests) == 1
                for request in requests:
                    self.ends[request].append("ran")
                    assert request.deadline is None or request.deadline >= queue.now
                self.collect()
        elif what == "expire":
            queue.expire()
        elif what == "clear":
            for request in queue.batcher.clear():
                self.ends[request].append("cleared")

    def collect(self) -> None:
        """Note who was dropped, and hold that all others are in."""
        for drop in self.queue.batcher.dropped:
            self.ends[drop.request].append(str(drop.reason))
        for request, reason in self.queue.lost:
            self.ends[request].append(str(reason))
        self.queue.batcher.dropped.clear()
        self.queue.lost.clear()
        assert all(len(ends) <= 1 for ends in self.ends.values()), "somebody left twice"
        left = [request for request in self.come if not self.ends[request]]
        assert len(self.queue.batcher) == len(left)


@given(specs, knowledge, happenings)
@settings(max_examples=300, deadline=None)
def test_every_request_leaves_once(
    spec: BatchingSpec,
    durations: tuple[tuple[int, float], ...],
    happening: list[tuple[str, object]],
) -> None:
    """In a batch of its kind that is not too large, dropped for a reason, or taken out."""
    watched = Watched(spec, known(durations))
    for what, how in happening:
        watched.happen(what, how)
    watched.happen("busy", 0)
    for _ in range(200):  # far beyond every delay, timeout and target
        watched.happen("wait", 5)
        watched.happen("run", 0)
    assert len(watched.queue.batcher) == 0, "somebody waits for ever"
    assert all(len(ends) == 1 for ends in watched.ends.values())


@given(
    st.lists(st.tuples(st.integers(0, 5), st.sampled_from([None, "a", "b"])), max_size=40),
    st.sampled_from([0.0, 0.006]),
    st.sampled_from([1, 4]),
)
def test_replies_in_order_mean_requests_in_order(
    steps: list[tuple[int, str | None]], delay_s: float, max_rows: int
) -> None:
    """Whoever they are of, and whenever they are due."""
    spec = BatchingSpec(max_rows=max_rows, max_delay_s=delay_s, preserve_ordering=True)
    queue = Queue(spec)
    for ticks, source in steps:
        queue.now += ticks * TICK_S
        queue.add(source=source, deadline_s=None if ticks % 2 else 1.0 / (1 + ticks))
        queue.drain()
    queue.now += delay_s
    queue.drain()
    assert queue.ran == queue.asked


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(1, 3), st.integers(0, 2)), max_size=40),
    st.sampled_from([0.0, 0.0035, 0.010]),
    st.sampled_from([0.0, 0.002, 0.030]),
)
def test_nobody_waits_for_company_longer_than_the_delay(
    steps: list[tuple[int, int, int]], delay_s: float, busy_s: float
) -> None:
    """At each look either something runs or the next look is later, and within the bound."""
    queue = Queue(BatchingSpec(max_rows=8, max_delay_s=delay_s))
    kinds = [new_kind() for _ in range(3)]
    for ticks, rows, kind in steps:
        until = queue.now + ticks * TICK_S
        while (look := queue.batcher.next_look(queue.now)) is not None and look <= until:
            queue.now = look
            queue.drain()
            again = queue.batcher.next_look(queue.now)
            assert again is None or again > look
        queue.now = until
        queue.start = until + busy_s if kind == 2 else queue.start
        queue.add(rows=rows, kind=kinds[kind])
        queue.drain()
        oldest = min(
            (each.received_at for each in queue.asked if each not in set(queue.ran)), default=None
        )
        if oldest is not None:
            bound = max(oldest + delay_s, queue.start - LEAD_S)
            look = queue.batcher.next_look(queue.now)
            assert look is not None
            assert queue.now < look <= bound + 1e-9
