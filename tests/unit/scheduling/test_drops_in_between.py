"""What a policy drops while other things are under way: told at once, and in order."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.errors import QueueTimeoutError, SupersededError
from headrace.scheduling.batcher import Drop
from headrace.scheduling.ordering import Ordering
from headrace.scheduling.request import Request
from headrace.slots.batch import Batch
from helpers.core_rig import Asked
from helpers.delay_batcher import DelayBatcher
from helpers.rows_rig import RowsRig


class Newest(DelayBatcher):
    """Of all requests only the newest waits."""

    def add(self, request: Request, now: float) -> None:
        """Queue it in the place of whoever waits."""
        self.dropped += [
            Drop(each, SupersededError("newer"), "superseded") for each in self.clear()
        ]
        super().add(request, now)


@pytest.mark.parametrize("what", ["cancel", "close", "nothing"])
def test_who_is_superseded_is_told_though_the_newer_one_never_runs(what: str) -> None:
    """Its caller waits for an answer, whatever becomes of the request in its place."""
    rig = RowsRig(num_slots=1)
    rig.line.batcher = Newest(max_rows=8)
    older, newer = rig.ask(b"a"), rig.ask(b"b")
    if what == "cancel":
        rig.scheduler.cancel(newer.request)
    elif what == "close":
        rig.scheduler.close()
    rig.run()
    assert [type(error) for error in older.errors] == [SupersededError]
    assert newer.num_ends == 1
    assert rig.blocks.num_leased == 0
    rig.close()


class Picky(DelayBatcher):
    """Never runs the request that the test holds back, and drops it when the test says so."""

    held: Request | None = None
    drops_held = False

    def next_batch(self, now: float) -> Batch[Request] | None:
        """Drop it, or run what else there is."""
        assert self.held is not None
        is_in = self.remove(self.held)
        if is_in and self.drops_held:
            self.dropped.append(Drop(self.held, QueueTimeoutError("late"), "timeout"))
        batch = super().next_batch(now)
        if is_in and not self.drops_held:
            self.add(self.held, now)
        return batch


def test_a_drop_lets_no_reply_pass_an_older_one() -> None:
    """Replies that are on their way to their callers go first."""
    rig = RowsRig(num_slots=1)
    rig.line.ordering = Ordering()
    rig.line.batcher = batcher = Picky(max_rows=2)
    told: list[Asked] = []

    def ask(payload: bytes) -> Asked:
        asked = rig.request(payload)
        end = asked.request.on_end

        def on_end(*ended: Any) -> None:
            told.append(asked)
            end(*ended)

        asked.request.on_end = on_end
        rig.scheduler.submit(asked.request, rig.clock())
        return asked

    first, waits, last = ask(b"1"), ask(b"2"), ask(b"3")
    batcher.held = waits.request
    rig.step()  # the first and the last run together
    rig.device.run_until_idle()
    batcher.drops_held = True
    rig.run()
    assert told == [waits, first, last]
    assert first.is_right
    assert last.is_right
    rig.close()
