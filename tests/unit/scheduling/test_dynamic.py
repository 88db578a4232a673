"""Dynamic batching: how many run together, and when."""

from __future__ import annotations

import pytest

from headrace.engines.batching_spec import BatchingSpec
from headrace.scheduling.dynamic import LEAD_S
from helpers.queue_rig import Queue, known, new_kind

DELAY_S = 0.010


def delayed(max_rows: int = 8, **fields: object) -> Queue:
    """Return a queue that waits for company."""
    return Queue(BatchingSpec(max_rows=max_rows, max_delay_s=DELAY_S, **fields))  # type: ignore[arg-type]


def test_without_a_delay_what_waits_runs_at_once() -> None:
    """In order of arrival, at most as many rows as the model takes."""
    queue = Queue(BatchingSpec(max_rows=4))
    asked = [queue.add() for _ in range(10)]
    assert queue.drain() == [asked[:4], asked[4:8], asked[8:]]
    assert len(queue.batcher) == 0
    assert queue.batcher.next_look(0.0) is None


def test_a_batch_has_the_layout_of_its_rows() -> None:
    """One request keeps its own; several have their kind's."""
    queue = Queue()
    first = queue.add(rows=3)
    batch = queue.next_batch()
    assert batch is not None
    assert (batch.layout, batch.rows) == (first.layout, 3)
    queue.add(rows=3)
    queue.add(rows=2)
    batch = queue.next_batch()
    assert batch is not None
    assert batch.layout.kind is not None
    assert batch.layout is batch.layout.kind.layout(5)
    assert batch.rows == 5


def test_the_oldest_waits_for_company_as_long_as_it_may() -> None:
    """Then all that came runs; until then the queue says when to look again."""
    queue = delayed()
    first = queue.add()
    assert queue.next() == []
    assert queue.batcher.next_look(queue.now) == DELAY_S
    queue.now = 0.7 * DELAY_S
    second = queue.add()
    assert queue.next() == []
    assert queue.batcher.next_look(queue.now) == DELAY_S
    queue.now = DELAY_S
    assert queue.next() == [first, second]


def test_a_full_batch_does_not_wait() -> None:
    """Nor does it take more; the rest waits on."""
    queue = delayed(max_rows=4)
    asked = [queue.add(rows=2) for _ in range(3)]
    assert queue.drain() == [asked[:2]]
    assert queue.batcher.next_look(queue.now) == DELAY_S


def test_a_request_that_does_not_fit_waits_for_the_next_batch() -> None:
    """Nobody overtakes it."""
    queue = Queue(BatchingSpec(max_rows=4))
    three, two, one = queue.add(rows=3), queue.add(rows=2), queue.add(rows=1)
    assert queue.drain() == [[three], [two, one]]


def test_a_preferred_size_does_not_wait() -> None:
    """The largest that is filled runs; who is left waits, and then runs in whatever number."""
    queue = delayed(max_rows=8, preferred_rows=(2, 4))
    asked = [queue.add() for _ in range(5)]
    assert queue.drain() == [asked[:4]]
    queue.now = DELAY_S
    assert queue.drain() == [asked[4:]]


def test_what_waited_enough_runs_whatever_is_preferred() -> None:
    """A preferred size is no reason to wait longer than allowed, nor to be split."""
    queue = delayed(max_rows=8, preferred_rows=(4,))
    asked = [queue.add() for _ in range(3)]
    queue.now = DELAY_S
    asked += [queue.add() for _ in range(2)]
    assert queue.drain() == [asked]


def test_kinds_do_not_mix() -> None:
    """Each waits for company of its own; the one that came first runs first."""
    queue = delayed(max_rows=2)
    other = new_kind()
    first, second = queue.add(), queue.add(kind=other)
    assert queue.next() == []
    third = queue.add(kind=other)
    assert queue.drain() == [[second, third]]
    queue.now = DELAY_S
    assert queue.drain() == [[first]]


def test_what_cannot_share_a_batch_runs_alone_and_in_turn() -> None:
    """It waits for nobody, and does not go before those who came before and are ready."""
    queue = Queue()
    first, alone, last = queue.add(), queue.add(kind=None), queue.add(kind=None)
    assert queue.drain() == [[first], [alone], [last]]
    queue = delayed()
    queue.add()
    alone = queue.add(kind=None)
    assert queue.drain() == [[alone]]


@pytest.mark.parametrize("delay_s", [0.0, DELAY_S])
def test_while_every_slot_is_busy_a_batch_stays_open(delay_s: float) -> None:
    """It is bound shortly before one comes free, with all that came meanwhile."""
    queue = Queue(BatchingSpec(max_rows=8, max_delay_s=delay_s))
    queue.start = 0.050
    asked = [queue.add()]
    assert queue.next() == []
    look = queue.batcher.next_look(queue.now)
    assert look == pytest.approx(0.050 - LEAD_S)
    queue.now = 0.030
    asked.append(queue.add())
    assert queue.next() == []
    queue.now = look or 0.0
    assert queue.drain() == [asked]


def test_a_full_batch_is_bound_at_once() -> None:
    """The next lane is its place: nothing could make it better."""
    queue = Queue(BatchingSpec(max_rows=2))
    queue.start = 0.050
    asked = [queue.add() for _ in range(2)]
    assert queue.drain() == [asked]


@pytest.mark.parametrize(
    ("flood", "newcomer", "num_priorities"),
    [
        ({"source": "flood"}, {"source": "other"}, 1),
        ({"priority": 2}, {"priority": 1}, 2),
        ({"deadline_s": 9.0}, {"deadline_s": 1.0}, 1),
    ],
)
def test_a_full_batch_stays_open_for_who_goes_before(
    flood: dict[str, object], newcomer: dict[str, object], num_priorities: int
) -> None:
    """A flood that fills every batch does not hold the next lane already."""
    waits = Queue(BatchingSpec(max_rows=8, num_priorities=num_priorities))
    waits.start, waits.num_busy = 0.010, 1
    for _ in range(16):
        waits.add(**flood)
    assert waits.next() == []
    assert waits.batcher.next_look(0.0) == pytest.approx(0.010 - LEAD_S)
    waits.now = 0.009
    urgent = waits.add(**newcomer)
    waits.now = 0.010 - LEAD_S
    batch = waits.next()
    assert urgent in batch
    assert len(batch) == 8


def test_a_slot_that_was_expected_to_be_free_is_taken_at_once() -> None:
    """Work that takes longer than ever must not keep the queue closed."""
    queue = Queue()
    queue.start, queue.now = 0.050, 0.060
    first = queue.add()
    assert queue.drain() == [[first]]


def test_who_left_does_not_run() -> None:
    """Once only; and its place is nobody's."""
    queue = delayed()
    first, second = queue.add(), queue.add()
    assert queue.batcher.remove(first)
    assert not queue.batcher.remove(first)
    assert len(queue.batcher) == 1
    queue.now = DELAY_S
    assert queue.drain() == [[second]]
    assert not queue.batcher.remove(second)


def test_clearing_takes_everything_out() -> None:
    """Of every kind."""
    queue = delayed()
    asked = {queue.add(), queue.add(kind=new_kind()), queue.add(kind=None)}
    assert set(queue.batcher.clear()) == asked
    assert len(queue.batcher) == 0
    assert queue.drain() == []


def test_what_cannot_be_done_in_time_does_not_run() -> None:
    """Neither what is late, nor what even a quick run would make late."""
    queue = Queue(capacity=known([(1, 0.010)]))
    late, hopeless, fine = (queue.add(deadline_s=s) for s in (0.001, 0.012, 0.030))
    queue.now = 0.005
    assert queue.drain() == [[fine]]
    assert {request for request, _ in queue.lost} == {late, hopeless}


def test_what_is_late_ends_though_no_slot_is_free() -> None:
    """The caller hears of it."""
    queue = Queue()
    queue.start = 1.0
    late, fine = queue.add(deadline_s=0.5), queue.add(deadline_s=2.0)
    queue.expire()
    assert queue.lost == [(late, "hopeless")]
    queue.now = 0.6
    queue.add(deadline_s=-0.1)
    queue.expire()
    assert queue.lost[1][1] == "expired"
    assert queue.batcher.remove(fine)
