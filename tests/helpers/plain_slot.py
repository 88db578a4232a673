"""One slot of a few lines, to see a queue at work without the core: exact durations, two lanes.

What is bound runs one after the other; while two batches are bound no third one is asked for. The
queue is told exactly when its next batch would begin.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from math import inf
from typing import Any

from headrace.scheduling.request import Request
from helpers.queue_rig import Queue

NUM_LANES = 2
EXPIRE_EVERY_S = 0.02  # as the scheduler does


@dataclass(frozen=True)
class Job:
    """A request that comes: `due_s` is a moment, and so is `at_s`."""

    at_s: float = 0.0
    due_s: float = inf
    rows: int = 1
    source: str | None = None
    priority: int = 0


@dataclass
class Served:
    """What became of a job: when its batch was bound, began and ended, infinity for never.

    `place` is its number among all that were served, in the order in which they were taken.
    """

    job: Job
    place: float = inf
    bound_s: float = inf
    begun_s: float = inf
    ended_s: float = inf

    @property
    def is_in_time(self) -> bool:
        """Whether its answer came when it was due."""
        return self.ended_s <= self.job.due_s


def serve(queue: Queue, jobs: Sequence[Job], service: Callable[[int], float]) -> list[Served]:
    """Let jobs come, by rising `at_s`, and run until nothing is left; return them in that order."""
    served = [Served(job) for job in jobs]
    of: dict[Request, Served] = {}
    coming, num_served, ends, expire_s = 0, 0, [0.0] * NUM_LANES, 0.0
    while True:
        while coming < len(jobs) and jobs[coming].at_s <= queue.now:
            of[_add(queue, jobs[coming])] = served[coming]
            coming += 1
        while ends[-NUM_LANES] <= queue.now and (batch := queue.next_batch()):
            begun_s, took_s = max(queue.now, ends[-1]), service(batch.rows)
            ends.append(begun_s + took_s)
            queue.capacity.learn(batch.rows, took_s)
            queue.start = ends[-1]
            for request in batch.requests:
                its = of[request]
                its.place, num_served = num_served, num_served + 1
                its.bound_s, its.begun_s, its.ended_s = queue.now, begun_s, ends[-1]
        if queue.now >= expire_s:
            queue.expire()
            expire_s = queue.now + EXPIRE_EVERY_S
        looks = [end for end in ends[-NUM_LANES:] if end > queue.now]
        if coming < len(jobs):
            looks.append(jobs[coming].at_s)
        if len(queue.batcher):
            look = queue.batcher.next_look(queue.now)
            looks.append(expire_s if look is None else min(max(look, queue.now), expire_s))
        if not looks:
            return served
        queue.now = min(looks)


def most_in_time(jobs: Sequence[Job], service: Callable[[int], float], max_rows: int) -> int:
    """Return how many jobs of one row could be in time at most, by trying every schedule.

    It knows of every job beforehand, and may leave the slot idle.
    """
    everyone = frozenset(range(len(jobs)))

    @cache
    def best(now: float, left: frozenset[int]) -> int:
        here = [index for index in left if jobs[index].at_s <= now]
        later = [jobs[index].at_s for index in left if jobs[index].at_s > now]
        most = best(min(later), left) if later else 0
        for chosen in _subsets(here, max_rows):
            end_s = now + service(len(chosen))
            if all(jobs[index].due_s >= end_s for index in chosen):
                most = max(most, len(chosen) + best(end_s, left - chosen))
        return most

    return best(0.0, everyone)


def _subsets(indices: Sequence[int], most: int) -> list[frozenset[int]]:
    subsets = [frozenset[int]()]
    for index in indices:
        subsets += [each | {index} for each in subsets if len(each) < most]
    return subsets[1:]


def _add(queue: Queue, job: Job) -> Request:
    fields: dict[str, Any] = {"source": job.source, "priority": job.priority, "rows": job.rows}
    deadline_s = None if job.due_s == inf else job.due_s - queue.now
    return queue.add(deadline_s=deadline_s, **fields)
