"""Nobody waits for ever, and no source for another's flood: bounds that hold whatever comes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.engines.batching_spec import BatchingSpec
from headrace.scheduling.standing import PATIENCE_S
from headrace.scheduling.waiting import AGING_S
from helpers.plain_slot import Job, Served, serve
from helpers.queue_rig import Queue, known

MAX_ROWS = 4


def service(rows: int) -> float:
    """Seconds of a batch."""
    return 0.06 + 0.04 * rows


def queue(**fields: object) -> Queue:
    """Return a queue that knows what its batches take."""
    spec = BatchingSpec(max_rows=MAX_ROWS, **fields)  # type: ignore[arg-type]
    return Queue(spec, known([(rows, service(rows)) for rows in range(1, MAX_ROWS + 1)]))


jobs_of_sources = st.lists(
    st.builds(
        Job,
        at_s=st.integers(0, 30).map(lambda tenths: tenths / 10),
        rows=st.integers(1, MAX_ROWS),
        source=st.sampled_from(["a", "b", "c", "d"]),
    ),
    min_size=8,
    max_size=60,
).map(lambda jobs: sorted(jobs, key=lambda job: job.at_s))


@given(jobs_of_sources)
@settings(max_examples=300, deadline=None)
def test_sources_that_both_wait_are_served_alike(jobs: Sequence[Job]) -> None:
    """Over any time in which both wait: rows differ by a request of each and one of a third."""
    served = serve(queue(), jobs, service)
    third = max(job.rows for job in jobs)  # its share moves virtual time past who waits
    for one, other in combinations("abcd", 2):
        most = sum(
            max((job.rows for job in jobs if job.source == source), default=0)
            for source in (one, other)
        )
        assert _most_apart(served, one, other) <= most + third


def _most_apart(served: Sequence[Served], one: str, other: str) -> int:
    """Return by how many rows one source was ahead of the other while both waited, at most."""
    most = ahead = least_ahead = most_ahead = 0
    for each in sorted(served, key=lambda each: each.place):
        waiting = {
            waits.job.source
            for waits in served
            if waits.job.at_s <= each.bound_s and waits.place >= each.place
        }
        if not {one, other} <= waiting:
            ahead = least_ahead = most_ahead = 0
            continue
        ahead += each.job.rows * ((each.job.source == one) - (each.job.source == other))
        least_ahead, most_ahead = min(least_ahead, ahead), max(most_ahead, ahead)
        most = max(most, most_ahead - least_ahead)
    return most


def test_a_newcomer_waits_for_one_request_of_each_who_was_there() -> None:
    """However long the others' queues are, and however much was served before."""
    flood = [Job(source="flood") for _ in range(400)]
    steady = [Job(at_s=tenths / 10, source="steady") for tenths in range(0, 300, 7)]
    late = Job(at_s=9.0, source="late")
    served = serve(queue(), sorted([*flood, *steady, late], key=lambda job: job.at_s), service)
    (its,) = [each for each in served if each.job is late]
    in_time = [each for each in served if late.at_s <= each.bound_s and each.place < its.place]
    by_source = [each.job.source for each in in_time]
    assert by_source.count("flood") <= 1 + MAX_ROWS  # what ran with it in its batch included
    for each in served:
        if each.job.source == "steady":
            assert each.begun_s - each.job.at_s <= 3 * service(MAX_ROWS)


def overloaded(until_s: float, load: float, **fields: object) -> list[Job]:
    """Return jobs that keep the slot busier than it can be."""
    rate = load * MAX_ROWS / service(MAX_ROWS)
    return [
        Job(at_s=index / rate, **fields)  # type: ignore[arg-type]
        for index in range(int(until_s * rate))
    ]


@pytest.mark.parametrize("priority", [2, 3])
def test_a_low_priority_waits_for_its_aging_and_no_longer(priority: int) -> None:
    """Under twice the load of urgent work: then it is as old as those who come first are."""
    flood = overloaded(12.0, 2.0, priority=1)
    low = Job(at_s=0.5, priority=priority)
    served = serve(
        queue(num_priorities=3), sorted([*flood, low], key=lambda job: job.at_s), service
    )
    (its,) = [each for each in served if each.job is low]
    before = [each.job for each in served if each.place < its.place]
    assert its.place < len(served) - 1, "it was last of all"
    aged_s = low.at_s + (priority - 1) * AGING_S
    assert all(job.at_s <= aged_s + 1e-9 for job in before)


@pytest.mark.parametrize("fields", [{}, {"target_p99_s": 0.9}])
def test_who_has_no_deadline_is_served_beside_those_who_have(fields: dict[str, float]) -> None:
    """A flood of deadlines holds it up for as long as its patience, and no longer."""
    flood = [Job(at_s=job.at_s, due_s=job.at_s + 0.8, priority=1) for job in overloaded(20.0, 1.5)]
    patient = [Job(at_s=0.5, priority=1), Job(at_s=0.5, priority=2)]
    jobs = sorted([*flood, *patient], key=lambda job: job.at_s)
    served = serve(queue(num_priorities=2, **fields), jobs, service)
    for each in served:
        if each.job in patient and not fields:
            assert each.ended_s <= 0.5 + PATIENCE_S + AGING_S + 3 * service(MAX_ROWS)
    in_time = sum(each.is_in_time for each in served)
    assert in_time >= 0.9 * 20.0 * MAX_ROWS / service(MAX_ROWS)
