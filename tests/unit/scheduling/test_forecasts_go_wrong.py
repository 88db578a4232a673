"""What the queue does when times are uneven, forecasts are wrong, or clocks were read too early."""

from __future__ import annotations

from headrace.engines.batching_spec import BatchingSpec
from headrace.scheduling.arrivals import ArrivalRate
from helpers.queue_rig import Queue, known, new_kind


def test_the_level_whose_turn_it_is_may_be_passed_over_as_a_whole() -> None:
    """Then others of that kind run: a batch without requests would end the server's work."""
    spec = BatchingSpec(max_rows=8, num_priorities=2, default_priority=2)
    queue = Queue(spec, known([(1, 0.005), (2, 0.006), (4, 0.008), (8, 0.012)]))
    ours, other = new_kind(), new_kind()
    last = queue.add(kind=other, deadline_s=1.0)
    tight = queue.add(kind=ours, priority=1, deadline_s=0.007)  # alone it would be in time
    many = [queue.add(kind=ours, deadline_s=0.5) for _ in range(7)]
    assert queue.next() == many
    assert queue.drain() == [[tight], [last]]
    assert not queue.lost


def test_a_smaller_size_may_take_longer_than_a_larger_one() -> None:
    """Who would be in time with the larger one is not in time with it; here nobody would be."""
    capacity = known([(1, 0.004), (4, 0.0045), (8, 0.0095)])
    for took_s in (0.008, 0.001) * 10:
        capacity.learn(4, took_s)
    assert capacity.most_s(4) > capacity.most_s(8)
    queue = Queue(BatchingSpec(max_rows=8), capacity)
    between_s = (capacity.most_s(4) + capacity.most_s(8)) / 2
    queue.add(deadline_s=capacity.most_s(8) - 1e-5)
    loose = [queue.add(deadline_s=between_s) for _ in range(7)]
    chosen = queue.next()
    assert chosen == loose[: len(chosen)] != []


def test_a_size_that_was_slow_for_a_while_is_tried_again() -> None:
    """Requests of many rows are refused for what their size took: that is what is doubted."""
    capacity = known([(1, 0.001), (8, 0.002)])
    for _ in range(30):
        capacity.learn(8, 0.05)  # something else had the machine
    queue = Queue(BatchingSpec(max_rows=8, target_p99_s=0.02), capacity)
    assert queue.refuse(rows=8) == "target"
    assert any(queue.refuse(rows=8) is None for _ in range(100))


def test_arrivals_bear_a_clock_that_was_read_before_others_took_their_turn() -> None:
    """Threads read it and then wait for the core: what comes later may have been read earlier."""
    arrivals = ArrivalRate(1e-6)
    arrivals.come(1, 1.0)
    known_per_s = arrivals.rows_per_s(1.0)
    assert arrivals.rows_per_s(0.99) == known_per_s
    arrivals.come(1, 0.99)
    assert known_per_s <= arrivals.rows_per_s(1.0) <= 2 * known_per_s
