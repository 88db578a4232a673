"""A step is bounded: what is left is asked for again, and other models get their turn."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from headrace.metrics import Metrics
from headrace.scheduling.batcher import SingleBatcher
from headrace.scheduling.line import Line
from headrace.scheduling.scheduler import MAX_BATCHES_A_STEP, MAX_STEP_S
from headrace.slots.lane import Lane
from headrace.slots.pool import SlotPool
from helpers.core_rig import Asked, Rig

NUM_REQUESTS = 2 * MAX_BATCHES_A_STEP + 1


def crowded() -> tuple[Rig, list[Asked]]:
    """A core with a free lane for each of more requests than two steps may dispatch."""
    rig = Rig(num_slots=NUM_REQUESTS, max_queue_size=NUM_REQUESTS)
    return rig, [rig.submit(bytes([index])) for index in range(NUM_REQUESTS)]


def test_a_step_that_leaves_work_says_so() -> None:
    """Its driver must not wait for something to happen: nothing would."""
    rig, asked = crowded()
    num_in_flight = []
    for has_more in (True, True, False):
        assert rig.step() is has_more
        num_in_flight.append(rig.poller.num_in_flight)
    assert num_in_flight == [MAX_BATCHES_A_STEP, 2 * MAX_BATCHES_A_STEP, NUM_REQUESTS]
    rig.run()
    assert all(one.is_right for one in asked)
    rig.close()


def test_a_busy_model_lets_others_go_first_in_the_next_step() -> None:
    """However much is queued for one model, another's request waits for one step at most."""
    rig, _ = crowded()
    pool = SlotPool([rig._slot(NUM_REQUESTS)])
    other = Line("other", SingleBatcher(), pool, Metrics().model("other", "1"), 1)
    rig.scheduler.add_line(other)
    late = rig.request(b"other")
    late.request.line = other
    rig.scheduler.submit(late.request, rig.clock())
    rig.step()
    assert other.length == 1
    rig.step()
    assert other.length == 0
    rig.run()
    assert all(one.is_right for one in rig.asked)
    rig.scheduler.close()
    pool.close()
    rig.close()


class SlowToEnqueue(Rig):
    """A slot whose enqueue holds the thread that steps the core, as an inline model's run does."""

    def __init__(self, took_s: float) -> None:
        super().__init__(num_slots=NUM_REQUESTS, max_queue_size=NUM_REQUESTS)
        self.took_s = took_s
        for slot in self.slots:
            slot.enqueue = partial(self._enqueue, slot.enqueue)  # type: ignore[method-assign]

    def _enqueue(self, enqueue: Callable[[Lane, Any], None], lane: Lane, batch: Any) -> None:
        enqueue(lane, batch)
        self.device.now += self.took_s


@pytest.mark.parametrize(
    ("took_s", "num_batches"), [(0.0, MAX_BATCHES_A_STEP), (MAX_STEP_S / 4, 4), (1.0, 1)]
)
def test_a_step_is_bounded_by_time_as_well(took_s: float, num_batches: int) -> None:
    """Batches that hold the thread are few in a step; what is left makes the driver step again."""
    rig = SlowToEnqueue(took_s)
    for index in range(NUM_REQUESTS):
        rig.submit(bytes([index]))
    assert rig.step()
    assert sum(len(slot.in_flight) for slot in rig.slots) == num_batches
    rig.run()
    assert all(asked.is_right for asked in rig.asked)
    rig.close()
