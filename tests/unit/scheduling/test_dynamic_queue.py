"""Whose turn it is, who gives way, and who has waited for too long."""

from __future__ import annotations

from types import MappingProxyType

import pytest

from headrace.engines.batching_spec import BatchingSpec, QueuePolicy
from headrace.scheduling.waiting import AGING_S, LATE_STEP
from helpers.queue_rig import Queue, new_kind

PRIORITIES = {"num_priorities": 3, "default_priority": 2}


def alone(**fields: object) -> Queue:
    """Return a queue of a model that does not batch, as of a camera's detector."""
    return Queue(BatchingSpec(max_rows=1, **fields))  # type: ignore[arg-type]


# --- priorities -----------------------------------------------------------------------------------


def test_the_most_urgent_level_goes_first() -> None:
    """Who names no priority has the model's default."""
    queue = alone(**PRIORITIES)
    low, default, high = (queue.add(priority=level) for level in (3, 0, 1))
    assert queue.drain() == [[high], [default], [low]]


def test_a_lower_level_goes_first_when_it_is_older_by_its_aging() -> None:
    """And not before: each step is worth the same."""
    queue = alone(**PRIORITIES)
    low = queue.add(priority=3)
    queue.now = 2 * AGING_S - 0.01
    early = queue.add(priority=1)
    assert queue.next() == [early]
    queue.now = 2 * AGING_S + 0.01
    late = queue.add(priority=1)
    assert queue.drain() == [[low], [late]]


def test_levels_share_a_batch() -> None:
    """What is left of it after the urgent ones is not wasted."""
    queue = Queue(BatchingSpec(max_rows=3, **PRIORITIES))  # type: ignore[arg-type]
    lows = [queue.add(priority=3) for _ in range(3)]
    high = queue.add(priority=1)
    assert queue.drain() == [[high, *lows[:2]], lows[2:]]


def test_a_level_has_a_bound_of_its_own() -> None:
    """A full one refuses, and the others do not."""
    policies = MappingProxyType({1: QueuePolicy(max_queue_size=2)})
    queue = Queue(BatchingSpec(max_rows=8, policies=policies, **PRIORITIES), max_queue_size=3)  # type: ignore[arg-type]
    for _ in range(2):
        assert queue.refuse(priority=1) is None
        queue.add(priority=1)
    assert queue.refuse(priority=1) == "queue_full"
    for _ in range(3):
        assert queue.refuse() is None
        queue.add()
    assert queue.refuse() == queue.refuse(priority=2) == "queue_full"
    assert queue.refuse(priority=3) is None


# --- sources --------------------------------------------------------------------------------------


def test_sources_take_turns_by_rows() -> None:
    """Who sends larger requests gets fewer of them served."""
    queue = Queue(BatchingSpec(max_rows=2))
    large = [queue.add(source="large", rows=2) for _ in range(3)]
    small = [queue.add(source="small") for _ in range(6)]
    served = [request for batch in queue.drain() for request in batch]
    assert served[:3] == [large[0], small[0], small[1]]
    assert served[3:6] == [large[1], small[2], small[3]]


def test_those_who_do_not_say_are_one_source() -> None:
    """However many they are, somebody with a name has half."""
    queue = alone()
    unnamed = [queue.add() for _ in range(4)]
    named = [queue.add(source="a") for _ in range(2)]
    order = [request for batch in queue.drain() for request in batch]
    assert order == [unnamed[0], named[0], unnamed[1], named[1], unnamed[2], unnamed[3]]


def test_a_flood_of_one_kind_does_not_hold_up_another_source_of_another() -> None:
    """Turns are common to the kinds of a model."""
    queue = alone()
    kind, other = new_kind(), new_kind()
    flood = [queue.add(source="flood", kind=kind) for _ in range(50)]
    assert queue.next() == flood[:1]
    queue.now = 1.0
    quiet = queue.add(source="quiet", kind=other)
    assert quiet in [*queue.next(), *queue.next()]


def test_the_longest_queue_gives_its_last_up() -> None:
    """To who has less with the newcomer than it has without what it gave up."""
    queue = Queue(BatchingSpec(max_rows=8), max_queue_size=5)
    flood = [queue.add(source="flood") for _ in range(4)]
    queue.add(source="other")
    newcomer = queue.request(source="quiet")
    drop = queue.batcher.displace(newcomer)
    assert drop is not None
    assert (drop.request, drop.reason) == (flood[-1], "displaced")
    assert len(queue.batcher) == 4
    assert not queue.batcher.remove(flood[-1])


def test_nobody_gives_way_to_who_would_have_as_much() -> None:
    """Nor among those who do not say who they are."""
    queue = Queue()
    for _ in range(3):
        queue.add()
    assert queue.batcher.displace(queue.request()) is None
    queue.add(source="a")
    queue.add(source="a")
    assert queue.batcher.displace(queue.request()) is None
    assert queue.batcher.displace(queue.request(source="a")) is None  # three each
    drop = queue.batcher.displace(queue.request(source="b"))
    assert drop is not None
    assert drop.request.source is None


def test_no_request_gives_way_to_a_less_urgent_one() -> None:
    """A full staging memory is given to who is more urgent."""
    queue = Queue(BatchingSpec(max_rows=8, **PRIORITIES))  # type: ignore[arg-type]
    high = [queue.add(source="flood", priority=1) for _ in range(3)]
    low = [queue.add(source="flood", priority=3) for _ in range(3)]
    drop = queue.batcher.displace(queue.request(source="a", priority=1))
    assert drop is not None
    assert drop.request is low[-1]
    for request in low[:-1]:
        queue.batcher.remove(request)
    assert queue.batcher.displace(queue.request(source="a", priority=3)) is None
    drop = queue.batcher.displace(queue.request(source="a", priority=1))
    assert drop is not None
    assert drop.request is high[-1]


# --- the latest only ------------------------------------------------------------------------------


def test_a_fresher_request_of_a_source_takes_the_place_of_its_last() -> None:
    """Of its own alone, and not of one that runs already or that has no source."""
    queue = Queue(BatchingSpec(max_rows=4, keeps_latest=True))
    running = queue.add(source="a")
    assert queue.next() == [running]
    old, other = queue.add(source="a"), queue.add(source="b")
    new, unnamed = queue.add(source="a"), [queue.add(), queue.add()]
    assert queue.lost == [(old, "superseded")]
    assert set(queue.next()) == {new, other, *unnamed}


def test_it_waits_for_company_no_longer_than_the_one_before_would_have() -> None:
    """Or a source that sends faster than the delay ends would never be served."""
    queue = Queue(BatchingSpec(max_rows=4, max_delay_s=0.010, keeps_latest=True))
    for milliseconds in range(0, 10, 2):
        queue.now = milliseconds / 1e3
        queue.add(source="b")
        last = queue.add(source="a")
        assert queue.next() == []
    queue.now = 0.010
    assert last in queue.next()


def test_it_keeps_its_source_s_turn() -> None:
    """A source that is ever fresher does not fall behind the others."""
    queue = Queue(BatchingSpec(max_rows=1, keeps_latest=True))
    served: list[str | None] = []
    for _ in range(30):
        for source in ("slow", "quick", "quick", "quick"):
            queue.add(source=source)
        served += [request.source for request in queue.next()]
    assert abs(served.count("slow") - served.count("quick")) <= 1


def test_sources_that_left_are_forgotten() -> None:
    """Names are a client's to choose, and may be new each time."""
    queue = Queue(BatchingSpec(max_rows=8, keeps_latest=True))
    for number in range(2000):
        queue.add(source=f"camera {number}")
        queue.next()
    assert len(queue.batcher._intake._latest) < 100
    assert len(queue.batcher._kinds._clock(0.0)) < 10


# --- timeouts -------------------------------------------------------------------------------------


def timed(**fields: object) -> Queue:
    """Return a queue in which requests may wait for a second."""
    policy = QueuePolicy(default_timeout_s=1.0, **fields)  # type: ignore[arg-type]
    return Queue(BatchingSpec(max_rows=1, default_policy=policy))


def test_who_has_waited_for_too_long_is_refused() -> None:
    """Whether a batch is asked for or not; who was served in time is not."""
    queue = timed()
    served, late = queue.add(), queue.add()
    assert queue.next() == [served]
    queue.now = 0.999
    queue.expire()
    assert queue.lost == []
    queue.now = 1.0
    fresh = queue.add()
    assert queue.drain() == [[fresh]]
    assert queue.lost == [(late, "timeout")]


@pytest.mark.parametrize(
    ("may_override", "own_s", "expected_s"),
    [(True, 0.5, 0.5), (True, 2.0, 1.0), (True, 0.0, 1.0), (False, 0.5, 1.0)],
)
def test_a_request_s_own_timeout_may_be_shorter(
    may_override: bool, own_s: float, expected_s: float
) -> None:
    """Where the policy lets it; longer it may not be."""
    queue = timed(may_override=may_override)
    late = queue.add(timeout_s=own_s)
    queue.now = expected_s - 0.01
    queue.expire()
    assert queue.lost == []
    queue.now = expected_s
    queue.expire()
    assert queue.lost == [(late, "timeout")]


def test_who_is_delayed_runs_behind_those_who_are_not_late() -> None:
    """Once its time is over; and in its turn again when it has aged."""
    queue = timed(is_delayed=True)
    late = queue.add()
    queue.now = 1.0
    queue.expire()
    fresh = queue.add()
    assert queue.lost == []
    assert queue.next() == [fresh]
    queue.now = 1.0 + LATE_STEP * AGING_S + 0.01
    fresher = queue.add()
    assert queue.drain() == [[late], [fresher]]


def test_who_is_late_waits_for_no_company() -> None:
    """It has waited long enough."""
    policy = QueuePolicy(default_timeout_s=0.5, is_delayed=True)
    queue = Queue(BatchingSpec(max_rows=4, max_delay_s=1.0, default_policy=policy))
    late = queue.add()
    queue.now = 0.5
    assert queue.next() == [late]


def test_timeouts_of_requests_that_left_are_forgotten() -> None:
    """A queue that is quick keeps no list of all that it served in the last hour."""
    queue = Queue(BatchingSpec(max_rows=1, default_policy=QueuePolicy(default_timeout_s=3600.0)))
    for _ in range(2000):
        queue.add()
        queue.next()
    assert len(queue.batcher._intake._timeouts) < 100
