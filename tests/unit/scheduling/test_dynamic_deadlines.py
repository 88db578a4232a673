"""Who can still be answered in time: what runs, what is dropped, and what is refused at once."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.engines.batching_spec import BatchingSpec
from headrace.scheduling.dynamic import LEAD_S
from headrace.scheduling.sizing import sizes_up_to
from headrace.scheduling.standing import PATIENCE_S
from helpers.queue_rig import Queue, known, new_kind

FIXED_S, ROW_S = 0.004, 0.001  # of a batch
SIZES = (1, 2, 4, 8, 16)


def takes_s(rows: int) -> float:
    """Return what a batch takes."""
    return FIXED_S + ROW_S * rows


def queue(max_rows: int = 8, **fields: object) -> Queue:
    """Return a queue that knows what its batches take."""
    spec = BatchingSpec(max_rows=max_rows, **fields)  # type: ignore[arg-type]
    return Queue(spec, known([(rows, takes_s(rows)) for rows in SIZES]))


def test_who_is_due_first_goes_first() -> None:
    """Of one source; who has no deadline as if it were due after a patience."""
    waits = queue(1)
    patient, late, early = waits.add(), waits.add(deadline_s=9.0), waits.add(deadline_s=5.0)
    later = waits.add(deadline_s=PATIENCE_S + 1.0)
    assert waits.drain() == [[early], [late], [patient], [later]]


def test_who_could_only_be_late_is_dropped_and_the_reason_told() -> None:
    """Passed, or not to be met any more by even the quickest batch."""
    waits = queue()
    expired, hopeless, fine = (waits.add(deadline_s=each) for each in (0.002, 0.010, 0.030))
    waits.now = 0.006
    assert waits.drain() == [[fine]]
    assert waits.lost == [(expired, "expired"), (hopeless, "hopeless")]


def test_a_batch_is_as_large_as_pays_and_no_larger_than_is_in_time() -> None:
    """Four in time do more than eight of whom none is."""
    waits = queue()
    asked = [waits.add(deadline_s=takes_s(4) + 0.001) for _ in range(8)]
    assert waits.next() == asked[:4]


def test_who_is_too_tight_for_the_best_batch_is_passed_over() -> None:
    """It would make a batch of one: seven others are worth more."""
    waits = queue()
    tight = waits.add(deadline_s=takes_s(1) + 0.0005)
    loose = [waits.add(deadline_s=1.0) for _ in range(7)]
    assert waits.next() == loose
    assert waits.next() == [tight]  # on another slot it is in time


def test_nobody_is_passed_over_where_replies_keep_their_order() -> None:
    """Who does not fit is let go at once."""
    waits = queue(preserve_ordering=True)
    tight = waits.add(deadline_s=takes_s(1) + 0.0005)
    loose = [waits.add(deadline_s=1.0) for _ in range(7)]
    assert waits.drain() == [loose]
    assert waits.lost == [(tight, "hopeless")]


def test_waiting_for_company_ends_when_it_would_make_somebody_late() -> None:
    """The delay is a bound, and so is the deadline."""
    waits = queue(max_delay_s=0.100)
    first = waits.add(deadline_s=0.050)
    assert waits.next() == []
    look = waits.batcher.next_look(waits.now)
    assert look == pytest.approx(0.050 - takes_s(2) - LEAD_S, rel=1e-2)
    waits.now = look or 0.0
    assert waits.next() == [first]


def test_where_nothing_is_known_nothing_is_foretold() -> None:
    """Deadlines that have not passed are no reason to drop anybody."""
    waits = Queue(BatchingSpec(max_rows=4))
    asked = [waits.add(deadline_s=1e-6) for _ in range(4)]
    assert waits.refuse(deadline_s=1e-6) is None
    assert waits.drain() == [asked]


def test_a_newcomer_that_could_only_be_late_is_refused() -> None:
    """Because of what runs, what waits before it, or what it takes itself."""
    waits = queue()
    assert waits.refuse(deadline_s=0.004) == "hopeless"
    assert waits.refuse(deadline_s=0.006) is None
    waits.start = 0.020
    assert waits.refuse(deadline_s=0.024) == "hopeless"
    assert waits.refuse(deadline_s=0.026) is None
    waits.start = 0.0
    queue_s = 80 * takes_s(8) / 8
    for _ in range(80):
        waits.add(deadline_s=queue_s)
    assert waits.refuse(deadline_s=queue_s) == "hopeless"
    assert waits.refuse(deadline_s=1.2 * queue_s) is None


def test_who_goes_before_what_waits_is_not_refused_for_it() -> None:
    """Who is due before the others, a quiet source in a flood, a more urgent level."""
    waits = queue(num_priorities=2, default_priority=2)
    for _ in range(400):
        waits.add(deadline_s=60.0, source="flood")
    assert waits.refuse(deadline_s=0.050, source="flood") is None
    assert waits.refuse(deadline_s=0.050, source="quiet") is None
    assert waits.refuse(deadline_s=0.050, priority=1) is None
    for _ in range(400):
        waits.add(deadline_s=0.050, source="flood")
    assert waits.refuse(deadline_s=0.050, source="flood") == "hopeless"
    assert waits.refuse(deadline_s=0.050, source="quiet") is None


def test_a_model_that_was_slow_once_is_tried_again() -> None:
    """Where everybody is dropped for what is known, what is known is doubted."""
    waits = Queue(BatchingSpec(max_rows=4), known([(1, 1.0), (4, 1.0)]))
    for _ in range(40):
        if waits.refuse(deadline_s=0.1) is None:
            waits.add(deadline_s=0.1)
            if waits.next():
                return
    pytest.fail("nobody was served for forty requests")


@pytest.mark.parametrize(
    ("max_rows", "expected"),
    [(1, (1,)), (2, (1, 2)), (6, (1, 2, 3, 4, 6)), (32, (1, 2, 3, 4, 6, 8, 12, 16, 24, 32))],
)
def test_few_sizes_are_weighed(max_rows: int, expected: Sequence[int]) -> None:
    """Each at most half as large again as the one before, once they are not tiny."""
    assert sizes_up_to(max_rows) == expected
    assert 5 in sizes_up_to(8, (5, 99))
    assert 99 not in sizes_up_to(8, (5, 99))


slacks = st.lists(st.floats(0.0, 0.040), min_size=1, max_size=12)


@given(slacks, st.sampled_from([1, 4, 8]), st.sampled_from([0.0, 0.003]))
def test_no_batch_of_those_weighed_would_answer_more_in_time_per_second(
    slacks: list[float], max_rows: int, busy_s: float
) -> None:
    """Nor does it hold anybody who would be late in it, if anybody can be sure to be in time."""
    waits = queue(max_rows)
    waits.start = busy_s
    for slack_s in slacks:
        waits.add(deadline_s=busy_s + slack_s)
    waits.now = max(busy_s - LEAD_S, 0.0)
    batch = waits.next()
    dues = sorted(busy_s + slack_s for slack_s in slacks)
    most_s = waits.capacity.most_s

    def in_time(rows: int, dues: Sequence[float]) -> int:
        return min(rows, sum(due >= busy_s + most_s(rows) for due in dues))

    sizes = [size for size in sizes_up_to(max_rows) if size <= len(dues)]
    best = max((in_time(size, dues) / takes_s(size) for size in sizes), default=0.0)
    if best:
        mine = [request.deadline or 0.0 for request in batch]
        assert in_time(len(batch), mine) == len(batch)
        assert len(batch) / takes_s(len(batch)) >= best * 0.999


@given(st.lists(st.integers(1, 6), min_size=1, max_size=6))
def test_earliest_deadline_first_serves_all_if_any_order_does(dues: list[int]) -> None:
    """Unit jobs, one at a time, against every order there is."""
    unit_s = 0.010
    waits = Queue(BatchingSpec(max_rows=1), known([(1, unit_s)]))
    slack_s = unit_s / 4  # the last moment is not what is tested
    for due in dues:
        waits.add(deadline_s=due * unit_s + slack_s)
    done = 0
    while len(waits.batcher):
        if waits.next():
            waits.now += unit_s
            done += 1
    can_all = any(
        all(place < due for place, due in enumerate(order))
        for order in itertools.permutations(dues)
    )
    assert (done == len(dues)) == can_all


def test_kinds_with_nobody_left_are_no_trouble() -> None:
    """A newcomer is judged by those who are there."""
    waits = queue()
    waits.add(kind=new_kind())
    assert waits.next()
    assert waits.refuse(deadline_s=0.001, kind=new_kind()) == "hopeless"
    assert waits.refuse(deadline_s=0.001) == "hopeless"
    waits.add(kind=None)
    assert waits.next()
    waits.expire()
    assert waits.next() == []
