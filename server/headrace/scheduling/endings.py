"""The end of every request: its caller is told once, then its block goes back.

Rules
- What is in `noted` is told by `flush`, after the lanes were filled again; all else at once.
- Where a model preserves order, a reply waits until those before it have been told.
- An abandoned request never gets its reply.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from headrace.errors import AbandonedError
from headrace.scheduling.batcher import Drop
from headrace.scheduling.line import Line
from headrace.scheduling.ordering import Ordering, Reply
from headrace.scheduling.request import Request
from headrace.scheduling.sequences import SequenceBatcher
from headrace.slots.batch import Output
from headrace.slots.blocks import BlockPool
from headrace.slots.lane import Lane
from headrace.slots.state import SlotState

log = logging.getLogger(__name__)

Ended = tuple[Request, Sequence[Output] | None, Exception | None]

ABANDONED = AbandonedError("the caller cancelled the request")


class Endings:
    """Requests that are out of their lanes, or never reached one, on their way to their callers."""

    def __init__(
        self,
        blocks: BlockPool,
        *,
        clock: Callable[[], float],
        fail_line: Callable[[Line], None],
    ) -> None:
        """Start empty.

        Args:
            blocks: Where they go back to.
            clock: Seconds.
            fail_line: Called when the last slot of a line has failed.
        """
        self._blocks = blocks
        self._clock = clock
        self._fail_line = fail_line
        self.noted: deque[Ended] = deque()  # out of their lanes, not yet told to their callers

    def take_out(self, lane: Lane) -> None:
        """Note how each request of a lane ended, then free the lane."""
        batch, error = lane.batch, lane.error
        assert batch is not None
        slot, line = lane.slot, batch.requests[0].line
        note = self.noted.append
        timing, now = None, self._clock()
        if line.has_policy:
            note = self._way_for(line, now)
        if error is None:
            timing = lane.timing(now)
            if not slot.is_inline:
                slot.forecast.learn(batch.layout, timing)
            if line.has_policy:
                line.account(batch, timing)
        for index, request in enumerate(batch.requests):
            if error is not None:
                note((request, None, error))
            elif request.is_abandoned:
                line.metrics.dropped("cancelled")
                note((request, None, ABANDONED))
            else:
                request.timing = timing
                note((request, slot.outputs(lane, index), None))
        if slot.state is SlotState.FAULTED:
            log.error("slot %d of %s has failed: %s", slot.index, line.model, error)
            for request in batch.requests:
                assert request.block is not None
                self._blocks.forfeit(request.block)
                request.forfeit()
            if not line.pool.is_ready:
                self._fail_line(line)
        else:
            lane.free()

    def _way_for(self, line: Line, now: float) -> Callable[[Ended], None]:
        """Return what to tell how requests of a line have left their lane."""
        if line.sequences is not None:
            return partial(self._note_part, line.sequences, now)
        return self.noted.append if line.ordering is None else self._note

    def _note_part(self, sequences: SequenceBatcher, now: float, ended: Ended) -> None:
        """Note how a part of a sequence ended, whose state is taken before its block goes back."""
        request, outputs, error = ended
        failure = sequences.leave(request, outputs, error, now)
        self._note(ended if failure is error else (request, None, failure))

    def _note(self, ended: Ended) -> None:
        """Note how a request ended, or hold its reply back where order is preserved."""
        request, outputs, _ = ended
        if outputs is None or request.line.ordering is None:
            self.noted.append(ended)
        else:
            for reply in request.line.ordering.reply(request, outputs):
                self.noted.append((*_stood_for(reply), None))

    def has_noted(self, line: Line) -> bool:
        """Whether a request of a line has still to be told how it ended."""
        return any(request.line is line for request, _, _ in self.noted)

    def flush(self) -> None:
        """Tell everything that was noted."""
        while self.noted:
            self.end(*self.noted.popleft())

    def end(
        self, request: Request, outputs: Sequence[Output] | None, error: Exception | None
    ) -> None:
        """Tell the front door, then give the block back."""
        try:
            request.end(outputs, error)
        except Exception:
            log.exception("the front door failed to end a request")
        finally:
            if request.block is not None:
                self._blocks.release(request.block)
                request.block = None
        if error is not None and request.line.ordering is not None:
            self._let_through(request.line.ordering.leave(request))

    def drop(self, drops: list[Drop]) -> None:
        """End what will not run, and empty the list."""
        for request, error, reason in drops:
            if reason is not None:
                request.line.metrics.dropped(reason)
            self.end(request, None, error)
        drops.clear()

    def answer_in_turn(self, request: Request, ordering: Ordering) -> None:
        """End a request without outputs once those that came before it have been told."""
        ordering.come(request)
        self._let_through(ordering.reply(request, ()))

    def abandon(self, request: Request) -> None:
        """The caller of a request in flight has left: nobody waits for its reply any more."""
        request.is_abandoned = True
        ordering = request.line.ordering
        if ordering is None:
            return
        if ordering.holds(request):  # it has run, so that nothing else would end it
            request.line.metrics.dropped("cancelled")
            self.end(request, None, ABANDONED)
        else:
            self._let_through(ordering.leave(request))

    def _let_through(self, replies: Iterable[Reply]) -> None:
        for request, outputs in map(_stood_for, replies):
            if self.noted:  # older replies are in there
                self.noted.append((request, outputs, None))
            else:
                self.end(request, outputs, None)


def _stood_for(reply: Reply) -> Reply:
    """Let the first of a batch that leaves stand for it: who came before may have been given up."""
    request, _ = reply
    if request.claims is not None:
        request.is_first = bool(request.claims)
        request.claims.clear()
    return reply
