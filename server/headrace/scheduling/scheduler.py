"""The scheduler: pairs batches with free lanes and ends requests. One `step(now)` does it all.

Rules
- Called from one thread at a time; whoever drives it holds the core for the length of a call.
- A step never waits and is bounded, so that the front door gets its turn.
- Lanes are freed and filled again before replies are written, as long as the device may need it.
- Every request that `submit` accepted ends exactly once, whatever fails.
- A block goes back after the event that covers its last use; those of a faulted slot never do.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from math import inf

from headrace.errors import DeviceError, HeadraceError, UnavailableError
from headrace.scheduling.admission import SHUTTING_DOWN, Admission
from headrace.scheduling.endings import ABANDONED, Endings
from headrace.scheduling.ensembles import Ensembles
from headrace.scheduling.line import Line
from headrace.scheduling.request import Request, RequestState
from headrace.slots.blocks import BlockPool
from headrace.slots.poller import Poller
from headrace.slots.slot import Slot

log = logging.getLogger(__name__)

MAX_BATCHES_A_STEP = 32  # an inline model must not keep the front door from receiving
MAX_STEP_S = 2e-3
"""Nor one whose batches take up to a millisecond each (`LONGEST_INLINE_S`): 32 of them are many
calls that nobody receives. The batch that goes over it is the step's last."""

REPLIES_AT_ONCE = 8  # of inline models: a tenth less CPU a request under native, under 0.1 ms late
REPLIES_S = 300e-6  # replies of a sweep are written by then, nearly always
EXPIRE_EVERY_S = 0.02  # how late a queued request's deadline may be noticed when no lane is free


class Scheduler:
    """Runs the lines of all models of one device."""

    def __init__(
        self, blocks: BlockPool, poller: Poller, admission: Admission, *, clock: Callable[[], float]
    ) -> None:
        self._blocks = blocks
        self.poller = poller
        self._admission = admission
        self._clock = clock
        self._lines: list[Line] = []
        self._active: dict[Line, None] = {}  # lines with queued requests, in order of need
        self._expire_at = 0.0
        self._is_broken = False
        self._endings = Endings(blocks, clock=clock, fail_line=self._fail_line)
        self._noted = self._endings.noted
        self.ensembles = Ensembles(self, blocks, admission, self._endings, clock=clock)
        self._news = self.ensembles.news

    @property
    def is_idle(self) -> bool:
        """Whether no request waits and none is in flight."""
        is_at_rest = not self._active and self.poller.is_idle and not len(self._admission)
        return is_at_rest and not self._news

    @property
    def is_polling(self) -> bool:
        """Whether lanes are in flight, so that the poller must be asked again."""
        return not self.poller.is_idle

    @property
    def sticky(self) -> DeviceError | None:
        """The error that killed the device, None while it works."""
        return self.poller.sticky

    def add_line(self, line: Line, blocks: BlockPool | None = None) -> None:
        """Serve a model's line from now on, with the free blocks that it was warmed up with."""
        if blocks is not None:
            self._blocks.adopt(blocks)
        self._lines.append(line)

    def is_done_with(self, line: Line) -> bool:
        """Whether every request that came for a line has been told how it ended."""
        admission, endings = self._admission, self._endings
        return not line.has_work and not any(
            admission.has_dropped(each) or endings.has_noted(each) for each in (line, *line.pins)
        )

    def drop_waiting(self, line: Line, error: HeadraceError) -> None:
        """End what waits for a line with `error`; what is in flight is served."""
        for request in (*self._admission.take(line), *line.batcher.clear()):
            self._endings.end(request, None, error)
        self._active.pop(line, None)

    def remove_line(self, line: Line) -> None:
        """Forget a line that nothing is left of."""
        assert self.is_done_with(line), f"{line.model} is removed before it is done"
        self._lines.remove(line)

    def submit(self, request: Request, now: float) -> None:
        """Admit a request; from here on it ends exactly once.

        Raises:
            HeadraceError: It was refused (see `Admission.admit`) and will not end any more.
        """
        if self.poller.sticky is not None:
            raise UnavailableError(f"the device has failed: {self.poller.sticky}")
        line = request.line
        is_burst = line in self._active and line.length >= line.burst_size
        if is_burst and line.pool.has_free_lane:
            self._dispatch(now)  # many came at once: those that find a lane do not wait
        if not line.has_policy:
            is_staged = self._admission.admit(request, now)
        elif line.is_ensemble:
            self.ensembles.begin(request, now)
            return
        else:
            is_staged = self._admit_by_policy(request, now)
        if is_staged:
            self._queue(request, now)

    def answer(self, request: Request) -> None:
        """End a request whose reply is known, in its turn where order is preserved.

        Raises:
            HeadraceError: It was refused, as `submit` would, or so many replies are held back
                already that no more may be.
        """
        self._admission.check_known(request)
        if request.line.ordering is None:
            request.end((), None)
        else:
            self._endings.answer_in_turn(request, request.line.ordering)

    def cancel(self, request: Request) -> None:
        """The caller left: take the request out, or drop its result once the device is done."""
        if request.state is RequestState.QUEUED and request.line.batcher.remove(request):
            if not len(request.line.batcher):
                self._active.pop(request.line, None)
        elif request.state is RequestState.WAITING:
            self._admission.remove(request)
        else:
            self._endings.abandon(request)
            return
        request.line.metrics.dropped("cancelled")
        self._endings.end(request, None, ABANDONED)

    def step(self, now: float) -> bool:
        """Sweep the poller, run what can run, end what ended; True when there is more to do."""
        if not self.poller.is_idle:
            for lane in self.poller.poll_once(now):
                self._endings.take_out(lane)
            if self._noted and now + REPLIES_S < self.poller.due_at < inf:
                self._endings.flush()  # the streams have work meanwhile
        if len(self._admission):
            for request in self._admission.retry(now):
                self._queue(request, now)
        has_more = self._dispatch(now) if self._active else False
        self._endings.flush()
        if self._news:
            has_more = self.ensembles.advance(now)
        if self.poller.sticky is not None and not self._is_broken:
            self._fail_device(self.poller.sticky)
        if now >= self._expire_at:
            self._expire(now)
        return has_more

    def next_look(self, now: float) -> float | None:
        """Return when to step again though nothing happens, in clock seconds; None for never."""
        looks = [line.batcher.next_look(now) for line in self._active if line.pool.has_free_lane]
        if self._active or len(self._admission):
            looks.append(self._expire_at)
        looks.append(self.poller.next_look(now))
        return min((look for look in looks if look is not None), default=None)

    def break_down(self, error: DeviceError) -> None:
        """End all that is in and refuse the rest: the device is dead, or a step has a bug."""
        self.poller.sticky = self.poller.sticky or error
        self._fail_device(error)

    def refuse_new(self) -> None:
        """From now on refuse every request; what is in is served, and waits for no company."""
        self._admission.is_open = False
        for line in self._lines:
            line.batcher.hurry()

    def drop_queued(self, error: HeadraceError) -> None:
        """End everything that is not in flight with `error`."""
        waiting = [*self.ensembles.clear(), *self._admission.clear()]
        waiting += [request for line in self._active for request in line.batcher.clear()]
        self._active.clear()
        for request in waiting:
            request.line.metrics.dropped("shutdown")
            self._endings.end(request, None, error)

    def close(self) -> None:
        """Refuse new requests and end those that never reached the device."""
        self.refuse_new()
        self.drop_queued(UnavailableError(SHUTTING_DOWN))

    def _admit_by_policy(self, request: Request, now: float) -> bool:
        try:
            is_staged = self._admission.admit(request, now)
        finally:
            self._endings.drop(self._admission.dropped)  # another may have had to make room
        if request.line.ordering is not None:
            request.line.ordering.come(request)
        return is_staged

    def _queue(self, request: Request, now: float) -> None:
        request.state = RequestState.QUEUED
        request.staged_at = self._clock()
        line = request.line
        line.batcher.add(request, now)
        self._active[line] = None
        if line.batcher.dropped:  # it took another's place, who must not wait for the next batch
            self._endings.drop(line.batcher.dropped)

    def _dispatch(self, now: float) -> bool:
        """Fill free lanes; True when the step's share is used up with work left."""
        num_left, until = MAX_BATCHES_A_STEP, now + MAX_STEP_S
        for line in list(self._active):
            batcher, pool = line.batcher, line.pool
            while pool.has_free_lane:
                batch = batcher.next_batch(now)
                if batch is None:
                    break
                lane = pool.next_lane(batch.layout, is_behind=batch.is_behind)
                assert lane is not None, "no lane can have been taken in between"
                for request in batch.requests:
                    request.state = RequestState.IN_FLIGHT
                slot = lane.slot
                slot.enqueue(lane, batch)
                if slot.is_inline:
                    self._end_inline(slot, now)
                else:
                    self.poller.watch(slot)
                num_left = num_left - 1 if self._clock() < until else 0
                if not num_left:
                    break
            if batcher.dropped:
                self._endings.drop(batcher.dropped)
            if not len(batcher):
                self._active.pop(line, None)
            elif not pool.is_ready:
                self._fail_line(line)
            if not num_left:
                self._rotate(line)
                return bool(self._active)
        return False

    def _end_inline(self, slot: Slot, now: float) -> None:
        """The work is done already; a few replies go together, or each wakes the transport."""
        for lane in self.poller.poll_slot(slot, now):
            self._endings.take_out(lane)
        if len(self._noted) >= REPLIES_AT_ONCE:
            self._endings.flush()

    def _expire(self, now: float) -> None:
        self._expire_at = now + EXPIRE_EVERY_S
        if len(self._admission):
            self._admission.expire(now)
            self._endings.drop(self._admission.dropped)
        for line in list(self._active):
            line.batcher.expire(now)
            self._endings.drop(line.batcher.dropped)
            if not len(line.batcher):
                self._active.pop(line, None)

    def _fail_device(self, error: DeviceError) -> None:
        """The device is dead: nothing that is in can be served any more, on any slot."""
        self._is_broken = True
        for line in self._lines:
            for slot in line.pool.slots:
                for lane in self.poller.fault(slot, error):
                    self._endings.take_out(lane)
        self._endings.flush()
        self.drop_queued(UnavailableError(f"the device has failed: {error}"))

    def _fail_line(self, line: Line) -> None:
        """No slot of this model works any more: nothing that waits for it can be served."""
        error = UnavailableError(f"{line.model} is not at ready state: its slots have failed")
        self.drop_waiting(line, error)

    def _rotate(self, line: Line) -> None:
        """Let the other lines go first in the next step."""
        if line in self._active:
            self._active[line] = self._active.pop(line)
