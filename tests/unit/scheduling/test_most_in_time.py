"""How many answers are in time, beside the most that any schedule could have: all were tried."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from headrace.engines.batching_spec import BatchingSpec
from helpers.plain_slot import Job, most_in_time, serve
from helpers.queue_rig import Queue, known

MAX_ROWS = 8
TARGETS_S = (1.5, 2.0, 4.0, 8.0)
# Seconds of one row and of eight: batches that are nearly free, that pay, and that hardly pay.
CURVES = {"flat": (1.0, 1.2), "line": (1.0, 4.0), "steep": (1.0, 7.5)}

Service = Callable[[int], float]


def service_of(curve: str) -> Service:
    """Return what batches take, exactly."""
    one_s, most_s = CURVES[curve]
    return lambda rows: one_s + (most_s - one_s) / (MAX_ROWS - 1) * (rows - 1)


def compare(jobs: list[Job], target_s: float, service: Service) -> tuple[int, int]:
    """Return how many were in time, and how many could have been."""
    capacity = known([(rows, service(rows)) for rows in range(1, MAX_ROWS + 1)])
    queue = Queue(BatchingSpec(max_rows=MAX_ROWS, target_p99_s=target_s), capacity)
    reached = sum(each.is_in_time for each in serve(queue, jobs, service))
    possible = most_in_time(jobs, service, MAX_ROWS)
    assert reached <= possible
    return reached, possible


def some_jobs(rng: random.Random, span_s: float, due_s: Callable[[], float]) -> list[Job]:
    """Return up to seven jobs that come within a time."""
    times = sorted(rng.random() * span_s for _ in range(rng.randint(1, 7)))
    return [Job(at_s, at_s + due_s()) for at_s in times]


@pytest.mark.parametrize("curve", CURVES)
def test_a_target_is_met_as_often_as_can_be(curve: str) -> None:
    """By all that are there at once: nobody who knew everything could do better."""
    rng, service = random.Random(1), service_of(curve)
    for _ in range(100):
        target_s = rng.choice(TARGETS_S)
        reached, possible = compare(some_jobs(rng, 0.0, lambda: target_s), target_s, service)  # noqa: B023
        assert reached == possible


@pytest.mark.parametrize("curve", CURVES)
def test_not_knowing_who_comes_costs_little(curve: str) -> None:
    """Beside one who knows every arrival beforehand, and may wait for it."""
    rng, service = random.Random(2), service_of(curve)
    all_reached = all_possible = 0
    for _ in range(100):
        target_s = rng.choice(TARGETS_S)
        jobs = some_jobs(rng, rng.choice([2.0, 4.0, 8.0]), lambda: target_s)  # noqa: B023
        reached, possible = compare(jobs, target_s, service)
        all_reached, all_possible = all_reached + reached, all_possible + possible
    assert all_reached >= 0.92 * all_possible


@pytest.mark.parametrize("span_s", [0.0, 4.0])
@pytest.mark.parametrize("curve", CURVES)
def test_deadlines_of_all_lengths_are_met_by_half_at_least(curve: str, span_s: float) -> None:
    """By four in five over all. Urgent and lax ones do not go well into one batch."""
    rng, service = random.Random(3), service_of(curve)
    all_reached = all_possible = 0
    for _ in range(100):
        jobs = some_jobs(rng, span_s, lambda: 0.9 + 2 * rng.random() * rng.choice(TARGETS_S))
        reached, possible = compare(jobs, 0.0, service)
        assert reached >= possible / 2
        all_reached, all_possible = all_reached + reached, all_possible + possible
    assert all_reached >= 4 / 5 * all_possible
