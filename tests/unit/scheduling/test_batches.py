"""Batches in the scheduler: how they count, what they teach, and what makes room for whom."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.engines.batching_spec import BatchingSpec
from headrace.errors import ExpiredError, HeadraceError, OverloadedError, QueueTimeoutError
from headrace.scheduling.batcher import Drop, Helps, anyway
from headrace.scheduling.request import Request
from helpers.core_rig import Asked, Rig
from helpers.delay_batcher import DelayBatcher
from helpers.rows_rig import MAX_ROWS, RowsRig


class Picky(DelayBatcher):
    """Lets the test say who is refused, and takes the newest of another source out."""

    def __init__(self) -> None:
        super().__init__(MAX_ROWS)
        self.refusal: tuple[Exception, Any] | None = None

    def refuse(self, request: Request, now: float) -> Drop | None:
        """Do as the test says."""
        return None if self.refusal is None else Drop(request, *self.refusal)  # type: ignore[arg-type]

    def displace(self, request: Request, helps: Helps = anyway) -> Drop | None:
        """Take out the newest of another source."""
        for _, other in reversed(self._queue):
            if other.source != request.source and helps(other):
                self.remove(other)
                return Drop(other, OverloadedError("others want to be served, too"), "displaced")
        return None


def picky(**options: Any) -> tuple[RowsRig, Picky]:
    rig = RowsRig(**options)
    rig.line.batcher = batcher = Picky()
    return rig, batcher


def test_a_batch_counts_once_and_each_request_its_rows() -> None:
    """The first that is answered stands for the batch: a cancelled one cannot."""
    rig = RowsRig(num_slots=1)
    asked = [rig.ask(bytes(rows)) for rows in (1, 2, 3)]
    rig.step()
    rig.scheduler.cancel(asked[0].request)
    rig.run()
    assert [each.request.is_first for each in asked] == [False, True, False]
    assert [each.request.batch_rows for each in asked] == [6, 6, 6]
    assert asked[1].is_right
    assert asked[2].is_right
    rig.close()


def test_what_batches_take_is_learnt_by_the_rows_that_ran() -> None:
    """A request alone, and several together."""
    rig = RowsRig(num_slots=1, has_marks=True, launch_s=0.010)
    rig.ask(b"a")
    rig.run()
    for rows in (2, 3):
        rig.ask(bytes(rows))
    rig.run()
    assert [rows for rows, _ in rig.line.capacity.table()] == [1, 5]
    assert rig.line.capacity.mean_s(5) == pytest.approx(0.010, rel=0.01)
    rig.close()


def test_a_full_batch_is_not_kept_waiting_by_the_turn() -> None:
    """A front door may hand over hundreds of requests between two steps."""
    rig = RowsRig(num_slots=1)
    rig.line.burst_size = MAX_ROWS
    for index in range(MAX_ROWS + 1):
        rig.ask(bytes([index]))
    assert [lane.batch.rows for lane in rig.slots[0].in_flight if lane.batch] == [MAX_ROWS]
    rig.run()
    assert all(asked.is_right for asked in rig.asked)
    rig.close()


@pytest.mark.parametrize(
    ("error", "reason"),
    [(ExpiredError("hopeless"), "hopeless"), (OverloadedError("full"), "queue_full")],
)
def test_a_policy_refuses_at_the_door(error: Exception, reason: str) -> None:
    """Counted, told, and nothing is kept; one error may serve for all."""
    rig, batcher = picky()
    batcher.refusal = error, reason
    for _ in range(3):
        with pytest.raises(type(error)) as caught:
            rig.ask(b"x")
        assert len(caught.traceback) < 10
        rig.asked.pop()
    assert rig.metrics.read().drops[reason] == 3  # type: ignore[index]
    assert rig.blocks.num_leased == rig.line.length == 0
    rig.close()


def test_a_full_queue_gives_one_up_for_another_source() -> None:
    """The displaced request ends at once; its own source could not have displaced it."""
    rig, _ = picky(num_slots=1, max_queue_size=3, launch_s=1.0)
    for _ in range(2):
        rig.ask(b"busy")
        rig.step()
    flood = [rig.ask(bytes([index]), source="flood") for index in range(3)]
    with pytest.raises(OverloadedError, match="Exceeds maximum queue size"):
        rig.ask(b"x", source="flood")
    rig.asked.pop()
    other = rig.ask(b"y", source="other")
    assert [each.num_ends for each in flood] == [0, 0, 1]
    assert rig.metrics.read().drops["displaced"] == 1
    rig.run()
    assert other.is_right
    assert [each.num_ends for each in rig.asked] == [1] * len(rig.asked)
    rig.close()


def test_a_block_goes_from_one_source_to_another() -> None:
    """Where staging memory is short; a request that no block can hold displaces nobody."""
    rig, _ = picky(num_slots=1, budget_bytes=4 * 4096, launch_s=1.0)
    for _ in range(2):
        rig.ask(b"busy")
        rig.step()
    flood = [rig.ask(bytes([index]), source="flood") for index in range(4)]
    assert rig.line.num_waiting == 2
    with pytest.raises(Exception, match="more than there is in all"):
        rig.ask(bytes(5 * 4096), source="other")
    rig.asked.pop()
    assert rig.line.length == 4
    other = rig.ask(b"y", source="other")
    assert [each.num_ends for each in flood] == [0, 1, 0, 0]
    assert other.request.block is not None
    assert rig.line.num_waiting == 2
    rig.run()
    assert other.is_right
    rig.close()


def crowded(**options: Any) -> tuple[RowsRig, list[Asked]]:
    """Two lanes and four blocks: two requests in flight, and a source that queues two more."""
    rig, _ = picky(num_slots=1, budget_bytes=4 * 4096, launch_s=1.0, **options)
    for _ in range(2):
        rig.ask(b"busy")
        rig.step()
    return rig, [rig.ask(bytes([index]), source="flood") for index in range(2)]


@pytest.mark.parametrize(
    ("size_bytes", "error"),
    [(5 * 4096, "more than there is in all"), (2 * 4096, "the staging memory is in use")],
    ids=["than there is", "than the victim's"],
)
@pytest.mark.parametrize("max_queue_size", [2, 64], ids=["queue full", "no block"])
def test_nobody_gives_way_to_what_cannot_be_served_then(
    max_queue_size: int, size_bytes: int, error: str
) -> None:
    """A newcomer that needs more memory than another would give up, and may not wait for it."""
    rig, flood = crowded(max_waiting_bytes=0, max_queue_size=max_queue_size)
    with pytest.raises(HeadraceError, match=f"{error}|Exceeds maximum queue size"):
        rig.ask(bytes(size_bytes // 2), source="other")
    rig.asked.pop()
    assert [each.num_ends for each in flood] == [0, 0]
    assert rig.metrics.read().drops["displaced"] == 0
    rig.run()
    assert [each.num_ends for each in rig.asked] == [1] * len(rig.asked)
    rig.close()


def test_one_gives_way_and_not_another_for_its_block() -> None:
    """Who is displaced for a place in the queue gives its block as well, whoever waits for one."""
    rig, flood = crowded(max_queue_size=3)
    flood.append(rig.ask(b"waits", source="flood"))
    assert rig.line.num_waiting == 1
    other = rig.ask(b"y", source="other")
    assert other.request.block is not None
    assert [each.num_ends for each in flood] == [0, 1, 0]
    rig.run()
    assert other.is_right
    rig.close()


def test_no_lane_free_is_no_reason_to_look_again() -> None:
    """A batcher that was asked before the last lane was taken must not keep the driver busy."""
    rig = RowsRig(BatchingSpec(max_rows=2, max_delay_s=1.0), num_slots=1, launch_s=5.0)
    rig.ask(b"ab")
    rig.step()
    rig.ask(b"c")
    rig.step()
    now = rig.clock()
    look = rig.scheduler.next_look(now)
    assert look is not None
    assert look > now
    rig.ask(b"d")
    rig.step()
    assert len(rig.slots[0].in_flight) == 2
    rig.ask(b"e")
    rig.step()
    assert (rig.scheduler.next_look(now) or 0.0) >= now
    rig.run()
    rig.close()


def test_requests_that_run_alone_pay_for_no_policy() -> None:
    """The scheduler asks neither to refuse nor to learn."""
    assert not Rig().line.has_policy
    assert RowsRig().line.has_policy


def test_timeouts_are_the_batcher_s_and_end_with_its_error() -> None:
    """What a batcher drops ends with what it says."""
    rig, batcher = picky(num_slots=1)
    asked = rig.ask(b"x")
    batcher.remove(asked.request)
    batcher.dropped.append(
        Drop(asked.request, QueueTimeoutError("Request timeout expired"), "timeout")
    )
    rig.step()
    assert [str(error) for error in asked.errors] == ["Request timeout expired"]
    assert rig.metrics.read().drops["timeout"] == 1
    rig.close()
