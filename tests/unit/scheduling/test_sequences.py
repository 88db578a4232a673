"""Which requests of sequences run, in what order and on what state, whatever happens to others."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import AbandonedError, EngineError
from headrace.scheduling.request import Request
from headrace.scheduling.sequence import part_of, unstarted
from helpers.sequence_rig import SequenceQueue

FAILED = EngineError("the run failed")


def run_all(queue: SequenceQueue) -> None:
    """Let everything that may run do so, one after the other, until nothing is left to do."""
    while begun := queue.begin():
        for request in begun:
            queue.finish(request)


def seen(queue: SequenceQueue, request: Request) -> list[int]:
    """The numbers of the requests that made the state that a request ran on."""
    return list(queue.ledger.seen[request])


def test_requests_of_a_sequence_run_one_at_a_time_in_order() -> None:
    """The next one begins when the one before it has left, on the state that it left."""
    queue = SequenceQueue()
    first, second, third = queue.start(7), queue.ask(7), queue.ask(7, is_end=True)
    assert queue.begin() == [first]
    assert queue.begin() == []
    queue.finish(first)
    assert queue.begin() == [second]
    queue.finish(second)
    assert queue.begin() == [third]
    queue.finish(third)
    assert [seen(queue, each) for each in (first, second, third)] == [[], [0], [0, 1]]
    assert queue.batcher.num_sequences == 0


def test_sequences_run_together_and_see_nothing_of_each_other() -> None:
    """One request of each is in a batch; a number and a text are two sequences."""
    queue = SequenceQueue()
    for sequence_id in (7, "7", 8):
        queue.start(sequence_id)
        queue.ask(sequence_id)
    batch = queue.next_batch()
    assert batch is not None
    assert [part_of(each).id for each in batch.requests] == [7, "7", 8]
    for request in list(queue.in_flight):
        queue.finish(request)
    begun = queue.begin()
    assert [seen(queue, each) for each in begun] == [[0], [2], [4]]


def test_a_request_without_a_beginning_is_refused() -> None:
    """It says what to do; nothing is kept of it."""
    queue = SequenceQueue()
    error = unstarted(queue.ask("nobody"))
    assert queue.how(*queue.asked) == ["RequestError"]
    text = "inference request for sequence nobody to model 'm' must specify the START flag"
    assert str(error).startswith(text)
    assert (len(queue.batcher), queue.batcher.num_sequences) == (0, 0)


def test_after_its_end_a_sequence_has_to_begin_anew() -> None:
    """Its state is gone, also for what came before the end had run."""
    queue = SequenceQueue()
    end, late = queue.start(1, is_end=True), queue.ask(1)
    again = queue.start(1)
    run_all(queue)
    assert queue.how(end, late, again) == ["answered", "RequestError", "answered"]
    assert seen(queue, again) == []


def test_another_start_ends_the_sequence_before_it() -> None:
    """Its requests that came before still run, on its own state."""
    queue = SequenceQueue()
    old = [queue.start(1), queue.ask(1)]
    new = [queue.start(1), queue.ask(1)]
    run_all(queue)
    assert [seen(queue, each) for each in old + new] == [[], [0], [], [2]]


def test_what_failed_did_not_happen() -> None:
    """The next one runs on the state of the last that succeeded, and an end may be sent again."""
    queue = SequenceQueue()
    first, failed, third = queue.start(1), queue.ask(1), queue.ask(1, is_end=True)
    queue.begin()
    queue.finish(first)
    queue.begin()
    queue.finish(failed, FAILED)
    queue.begin()
    queue.finish(third, AbandonedError("its caller left"))
    again = queue.ask(1, is_end=True)
    run_all(queue)
    assert queue.how(failed, third, again) == ["EngineError", "AbandonedError", "answered"]
    assert seen(queue, third) == seen(queue, again) == [0]


def test_when_the_first_fails_there_is_no_sequence() -> None:
    """What waited behind it is refused, and so is what comes."""
    queue = SequenceQueue()
    first, second = queue.start(1), queue.ask(1)
    queue.begin()
    queue.finish(first, FAILED)
    assert queue.how(first, second) == ["EngineError", "RequestError"]
    assert queue.how(queue.ask(1)) == ["RequestError"]
    assert (queue.batcher.num_sequences, len(queue.batcher)) == (0, 0)


def test_a_start_that_leaves_before_its_turn_takes_along_what_is_behind_it() -> None:
    """What is before it runs on; nothing behind it sees the old state."""
    queue = SequenceQueue()
    old, start, behind = queue.start(1), queue.start(1), queue.ask(1)
    queue.begin()
    assert queue.cancel(start)
    queue.finish(old)
    assert queue.begin() == []
    assert queue.how(old, start, behind) == ["answered", "cancelled", "RequestError"]
    assert queue.batcher.num_sequences == 0


def test_cancelling_passes_the_turn_on() -> None:
    """Whether it waits, or is about to run; one that runs is left alone."""
    queue = SequenceQueue()
    first, second, third, fourth = queue.start(1), queue.ask(1), queue.ask(1), queue.ask(1)
    queue.begin()
    assert not queue.cancel(first)
    assert queue.cancel(third)
    queue.finish(first)
    assert queue.cancel(second)
    assert queue.batcher.next_look(queue.now) == queue.now
    assert queue.begin() == [fourth]
    assert seen(queue, fourth) == [0]


def test_an_idle_sequence_ends_in_time_and_not_before() -> None:
    """The time counts from its last answer, however long that took."""
    queue = SequenceQueue(idle_s=10.0)
    first = queue.start(1)
    queue.begin()
    queue.wait(30.0)
    queue.finish(first)
    assert queue.batcher.next_reap() == 40.0
    queue.wait(9.9)
    second = queue.ask(1)
    assert queue.begin() == [second]
    queue.wait(30.0)
    queue.finish(second)
    assert seen(queue, second) == [0]
    queue.wait(10.0)
    assert queue.how(first, second, queue.ask(1)) == ["answered", "answered", "RequestError"]
    assert (queue.batcher.num_expired, queue.batcher.num_sequences) == (1, 0)
    assert queue.batcher.next_reap() is None


def test_too_many_sequences_wait_in_order_of_arrival() -> None:
    """Each gets a place when another has ended, or was idle for too long."""
    queue = SequenceQueue(max_sequences=1, idle_s=10.0)
    a, b, c = (queue.start(each) for each in "abc")
    assert queue.begin() == [a]
    queue.finish(a)
    assert queue.begin() == []
    assert (queue.batcher.num_sequences, queue.batcher.num_in_backlog) == (1, 2)
    end = queue.ask("a", is_end=True)
    assert queue.begin() == [end]
    queue.finish(end)
    assert queue.begin() == [b]
    queue.finish(b)
    queue.wait(10.0)
    assert queue.begin() == [c]


def test_those_that_wait_for_a_place_get_it_when_nothing_more_will_come() -> None:
    """Nobody can go on with an idle sequence then, however long it might stay."""
    queue = SequenceQueue(max_sequences=1, idle_s=1e9)
    a, b, b_end, c = (*(queue.start(each) for each in "ab"), queue.ask("b"), queue.start("c"))
    assert queue.begin() == [a]
    queue.batcher.hurry()
    assert queue.begin() == [], "one that runs keeps its place"
    queue.finish(a)
    run_all(queue)
    assert queue.how(a, b, b_end, c) == ["answered"] * 4
    assert seen(queue, b_end) == [b.tag]


def test_those_that_wait_for_a_place_may_leave_and_expire() -> None:
    """Nothing is kept of a sequence that nobody waits for any more."""
    queue = SequenceQueue(max_sequences=1)
    queue.start("a")
    queue.begin()
    left, late, behind = queue.start("b"), queue.start("c", deadline_s=5.0), queue.ask("c")
    assert queue.cancel(left)
    queue.wait(6.0)
    assert queue.how(left, late) == ["cancelled", "ExpiredError"]
    assert queue.how(behind) == [""]  # refused when there is a place, or earlier if it leaves
    queue.finish(queue.in_flight[0])
    end = queue.ask("a", is_end=True)
    run_all(queue)
    assert queue.how(end, behind) == ["answered", "RequestError"]
    assert (queue.batcher.num_sequences, queue.batcher.num_in_backlog) == (0, 0)


def test_many_that_wait_in_vain_end_without_deep_recursion() -> None:
    """A seat is offered to thousands that have no beginning."""
    queue = SequenceQueue(max_sequences=1)
    first = queue.start("first", is_end=True)
    queue.begin()
    for number in range(3000):
        queue.start(number, deadline_s=1.0)
        queue.ask(number)
    queue.wait(2.0)
    queue.finish(first)
    assert queue.begin() == []
    assert sorted(set(queue.ended.values())) == ["ExpiredError", "RequestError", "answered"]
    assert len(queue.ended) == 6001


def test_clearing_returns_everything_once() -> None:
    """Also what was about to be told; what runs leaves without a trace."""
    queue = SequenceQueue(max_sequences=1)
    running = queue.start(1)
    queue.begin()
    waiting = [queue.ask(1), queue.start(2), queue.ask(2)]
    assert sorted(each.tag for each in queue.batcher.clear()) == [each.tag for each in waiting]
    assert (len(queue.batcher), queue.batcher.num_sequences) == (0, 0)
    queue.finish(running)
    assert queue.batcher.num_sequences == 0


def test_what_is_about_to_be_told_is_cleared_too() -> None:
    """A first request has failed, and what waited behind it has not been told yet."""
    queue = SequenceQueue()
    first, behind = queue.start(1), queue.ask(1)
    queue.begin()
    assert queue.batcher.leave(first, None, FAILED, queue.now) is FAILED
    assert [drop.request for drop in queue.batcher.dropped] == [behind]
    assert queue.batcher.clear() == [behind]
    assert queue.batcher.dropped == []


def test_starts_that_leave_again_and_again_leave_nothing_behind() -> None:
    """One mark is enough for any number of them."""
    queue = SequenceQueue()
    queue.start(1)
    queue.begin()
    for _ in range(50):
        start, other = queue.start(1), queue.ask(1)
        assert queue.cancel(start)
        assert queue.cancel(other)
    (sequence,) = queue.batcher._sequences.values()
    assert list(sequence.waiting) == [None]


IDS = st.sampled_from([1, 2, "1", "two", 5])
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("ask"),
            IDS,
            st.booleans(),
            st.booleans(),
            st.sampled_from([None, None, 3.0, 8.0]),
        ),
        st.tuples(st.just("begin")),
        st.tuples(st.just("finish"), st.integers(0, 9), st.booleans()),
        st.tuples(st.just("cancel"), st.integers(0, 9)),
        st.tuples(st.just("wait"), st.sampled_from([0.5, 4.0, 11.0])),
    ),
    max_size=60,
)


class Oracle:
    """What each sequence must carry, by the rules alone: no queue, no turns, no places."""

    def __init__(self) -> None:
        self.carried: dict[int | str, list[int] | None] = {}
        self.ran: dict[int | str, list[int]] = {}

    def begins(self, request: Request, on: list[int]) -> None:
        """A request begins to run on a state."""
        part = part_of(request)
        if part.is_start:
            self.carried[part.id] = None
        expected = [] if part.is_start else self.carried.get(part.id)
        assert on == expected, "it ran on another state"
        order = self.ran.setdefault(part.id, [])
        assert not order or order[-1] < request.tag, "it ran before one that came earlier"
        order.append(request.tag)

    def ends_well(self, request: Request, on: list[int]) -> None:
        """A request was answered."""
        part = part_of(request)
        self.carried[part.id] = None if part.is_end else [*on, request.tag]


@settings(max_examples=200)
@given(STEPS, st.integers(1, 3), st.integers(1, 4))
def test_whatever_happens_order_and_state_are_right(
    steps: list[tuple[Any, ...]], max_sequences: int, max_rows: int
) -> None:
    """Every request ends once, in order, on the state of its own sequence; nothing stays."""
    queue = SequenceQueue(max_sequences=max_sequences, max_rows=max_rows)
    oracle = Oracle()

    def begin() -> bool:
        batch = queue.next_batch()
        if batch is None:
            return False
        for request in batch.requests:
            oracle.begins(request, seen(queue, request))
        ids = [part_of(request).id for request in queue.in_flight]
        assert len(ids) == len(set(ids)), "two of one sequence are in flight"
        return True

    def finish(request: Request, *, is_well: bool) -> None:
        if is_well:
            oracle.ends_well(request, seen(queue, request))
        queue.finish(request, None if is_well else FAILED)

    for step in steps:
        match step:
            case ("ask", sequence_id, is_start, is_end, deadline_s):
                queue.ask(sequence_id, is_start=is_start, is_end=is_end, deadline_s=deadline_s)
            case ("begin",):
                begin()
            case ("finish", place, is_well) if place < len(queue.in_flight):
                finish(queue.in_flight[place], is_well=is_well)
            case ("cancel", place):
                waiting = [each for each in queue.asked if each not in queue.ended]
                if place < len(waiting):
                    queue.cancel(waiting[place])
            case ("wait", seconds):
                queue.wait(seconds)
        assert queue.batcher.num_sequences <= max_sequences
    for _ in range(1000):
        if not begin() and not queue.in_flight:
            if not len(queue.batcher):
                break
            queue.wait(11.0)
        while queue.in_flight:
            finish(queue.in_flight[0], is_well=True)
    queue.wait(11.0)
    assert len(queue.ended) == len(queue.asked)
    batcher = queue.batcher
    kept = (batcher._sequences, batcher._backlog, batcher._idle, batcher._moved, batcher._ready)
    assert (len(batcher), [len(each) for each in kept]) == (0, [0] * 5)
