"""Sequences: which of their requests may run, on what state, and when a sequence ends.

Rules
- The requests of a sequence run in the order in which they came, one at a time. Those of different
  sequences may run together, as the batcher inside decides: it never sees two of one sequence.
- A sequence begins with a request that says so, and its state is what the last request that
  succeeded left: one that failed, was cancelled or expired did not happen. When the first did not
  succeed there is no sequence, and what followed it is refused.
- It ends when its last request has succeeded, when another with its id begins, or when nothing was
  asked of it for `idle_s`. Its state is gone then.
- No more than `max_sequences` carry state; others wait, within the bound of the queue, for one of
  these to end, in order of arrival. Once nothing more will come, the idle end for them at once.
- Pure: it is given `now`. `remove` is not; what follows from it waits for a call that is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence as Several

from headrace.errors import HeadraceError
from headrace.scheduling.batcher import EXPIRED, Batcher, Drop, Helps, anyway
from headrace.scheduling.request import Request
from headrace.scheduling.sequence import Sequence, StateMover, part_of, unnamed, unstarted
from headrace.slots.batch import Batch, Output


class SequenceBatcher:
    """The policy of one model's queue where the model keeps state between requests.

    Attributes:
        dropped: Requests that will not run; the caller ends them and clears the list.
        num_expired: Sequences that ended because nothing was asked of them.
    """

    def __init__(
        self, inner: Batcher, states: StateMover, *, idle_s: float, max_sequences: int
    ) -> None:
        """Start without a sequence.

        Args:
            inner: Batches the requests whose turn it is.
            states: Moves their state.
            idle_s: A sequence that nothing is asked of for so long ends.
            max_sequences: How many carry state at a time.
        """
        self._inner = inner
        self._states = states
        self._idle_s = idle_s
        self._max_sequences = max_sequences
        self.dropped: list[Drop] = []
        self.num_expired = 0
        self._sequences: dict[int | str, Sequence] = {}
        self._backlog: dict[Sequence, None] = {}  # without a seat, in order of arrival
        self._idle: dict[Sequence, None] = {}  # with a seat and nothing to do, first to end first
        self._moved: list[Sequence] = []  # something of them was removed: they may have to go on
        self._ready: deque[Request] = deque()  # whose turn has come, not yet in the inner queue
        self._num_waiting = 0
        self._is_last = False  # nothing more will come

    def __len__(self) -> int:
        return self._num_waiting + len(self._ready) + len(self._inner)

    @property
    def num_sequences(self) -> int:
        """How many are served, those that nothing is asked of at present included."""
        return len(self._sequences) - len(self._backlog)

    @property
    def num_in_backlog(self) -> int:
        """How many wait for another to end."""
        return len(self._backlog)

    # --- as every batcher -------------------------------------------------------------------------

    def refuse(self, request: Request, now: float) -> Drop | None:
        """Say why a request that has just come shall not be queued; None when it may be."""
        return self._inner.refuse(request, now)

    def displace(
        self,
        request: Request,  # noqa: ARG002 -- others tell sources apart
        helps: Helps = anyway,  # noqa: ARG002
    ) -> Drop | None:
        """Return None: no request of a sequence gives way, or the rest would lack it."""
        return None

    def add(self, request: Request, now: float) -> None:
        """Queue a request behind those of its sequence; one without a beginning is dropped."""
        self.reap(now)
        part = request.part
        if part is None:  # the front door asks for it, but an ensemble's step has none
            self.dropped.append(Drop(request, unnamed(request.line.model), None))
            return
        sequence = self._sequences.get(part.id)
        if sequence is None:
            if not part.is_start:
                self.dropped.append(Drop(request, unstarted(request), None))
                return
            sequence = self._sequences[part.id] = Sequence(part.id)
            self._backlog[sequence] = None
        sequence.waiting.append(request)
        self._num_waiting += 1
        self._fill_seats(now)
        self._go_on(sequence, now)

    def remove(self, request: Request) -> bool:
        """Take a request out again; False when it is not queued any more."""
        sequence = self._sequences.get(part_of(request).id)
        if sequence is None:
            return False
        if sequence.turn is request:
            if request in self._ready:
                self._ready.remove(request)
            elif not self._inner.remove(request):
                return False
            sequence.turn = None
        elif sequence.withdraw(request):
            self._num_waiting -= 1
        else:
            return False
        self._moved.append(sequence)
        return True

    def next_batch(self, now: float) -> Batch[Request] | None:
        """Return what should run now, None when nothing should."""
        self._settle(now)
        while True:
            while self._ready:
                self._inner.add(self._ready.popleft(), now)
            batch = self._inner.next_batch(now)
            self._collect(now)
            if batch is not None or not self._ready:
                return batch

    def next_look(self, now: float) -> float | None:
        """Return when `next_batch` may answer anew though nothing arrives; None for never."""
        return now if self._ready or self._moved else self._inner.next_look(now)

    def expire(self, now: float) -> None:
        """Move every queued request whose deadline has passed to `dropped`."""
        self._inner.expire(now)
        self._collect(now)
        if self._num_waiting:
            for sequence in list(self._sequences.values()):
                self._expire(sequence, now)
        self._settle(now)

    def hurry(self) -> None:
        """Wait for no company from now on, nor for who is idle: nothing more will come."""
        self._inner.hurry()
        self._is_last = True

    def clear(self) -> list[Request]:
        """Take every queued request out and end every sequence."""
        requests = [drop.request for drop in self.dropped]
        requests += [*self._ready, *self._inner.clear()]
        for sequence in self._sequences.values():
            requests += [request for request in sequence.waiting if request is not None]
        for kept in (self.dropped, self._ready, self._sequences, self._backlog, self._idle):
            kept.clear()
        self._moved.clear()
        self._num_waiting = 0
        return requests

    # --- beyond that ------------------------------------------------------------------------------

    def leave(
        self,
        request: Request,
        outputs: Several[Output] | None,
        error: Exception | None,
        now: float,
    ) -> Exception | None:
        """Take the state of a request that was in flight; return how it ended, None for well.

        Args:
            request: It need not be known any more.
            outputs: Of the run; None where it failed, or nobody is told of it.
            error: How it ended otherwise.
            now: Clock seconds.
        """
        part = part_of(request)
        sequence = self._sequences.get(part.id)
        if sequence is None or sequence.turn is not request:
            return error
        sequence.turn = None
        if error is None:
            assert outputs is not None
            try:
                carried = self._states.take(outputs)
            except HeadraceError as failure:
                error = failure
            else:
                sequence.carried = None if part.is_end else carried
        self._go_on(sequence, now)
        return error

    def reap(self, now: float) -> None:
        """End the sequences that nothing was asked of for too long."""
        self._settle(now)
        while self._idle:
            sequence = next(iter(self._idle))
            if sequence.idle_at > now:
                return
            self.num_expired += 1
            self._end(sequence)
            self._fill_seats(now)

    def next_reap(self) -> float | None:
        """Return when `reap` may find something to do, in clock seconds; None for never."""
        if self._moved:
            return 0.0
        return next(iter(self._idle)).idle_at if self._idle else None

    # --- inside -----------------------------------------------------------------------------------

    def _go_on(self, sequence: Sequence, now: float) -> None:
        """Give the turn to the next request of a sequence, if that can be; others may follow."""
        if self._advance(sequence, now):
            self._fill_seats(now)

    def _fill_seats(self, now: float) -> None:
        """Serve those that wait for a seat, as long as there are any."""
        while self._backlog and self.num_sequences < self._max_sequences:
            sequence = next(iter(self._backlog))
            del self._backlog[sequence]
            sequence.has_seat = True
            self._advance(sequence, now)

    def _advance(self, sequence: Sequence, now: float) -> bool:
        """Give the turn to the next request of a sequence; True when the sequence has ended."""
        if sequence.turn is not None:
            return False
        if not sequence.has_seat:
            if any(request is not None for request in sequence.waiting):
                return False
            self._end(sequence)  # all that waited has left
            return False
        while sequence.waiting:
            request = sequence.waiting.popleft()
            if request is None or part_of(request).is_start:
                sequence.carried = None
            if request is None:
                continue
            self._num_waiting -= 1
            if sequence.carried is None and not part_of(request).is_start:
                self.dropped.append(Drop(request, unstarted(request), None))
                continue
            self._idle.pop(sequence, None)
            sequence.turn = request
            self._states.put(request, sequence.carried)
            self._ready.append(request)
            return False
        if sequence.carried is None:
            self._end(sequence)
            return True
        sequence.idle_at = now + self._idle_s
        self._idle.pop(sequence, None)
        self._idle[sequence] = None
        return False

    def _end(self, sequence: Sequence) -> None:
        del self._sequences[sequence.id]
        self._idle.pop(sequence, None)
        self._backlog.pop(sequence, None)

    def _settle(self, now: float) -> None:
        """Let the sequences go on that something was removed of; at last, seats are left."""
        while self._moved:
            sequence = self._moved.pop()
            if self._sequences.get(sequence.id) is sequence:
                self._go_on(sequence, now)
        while self._is_last and self._backlog and self._idle:
            self._end(next(iter(self._idle)))
            self._fill_seats(now)

    def _collect(self, now: float) -> None:
        """Take over what the inner queue dropped: the turn passes on."""
        drops = self._inner.dropped
        if not drops:
            return
        for drop in drops:
            self.leave(drop.request, None, drop.error, now)
        self.dropped.extend(drops)
        drops.clear()

    def _expire(self, sequence: Sequence, now: float) -> None:
        for request in list(sequence.waiting):
            if request is not None and request.deadline is not None and request.deadline <= now:
                sequence.withdraw(request)
                self._num_waiting -= 1
                self.dropped.append(Drop(request, EXPIRED, "expired"))
                self._moved.append(sequence)
