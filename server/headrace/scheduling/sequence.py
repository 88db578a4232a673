"""One sequence: requests that run in order, one at a time, each on the state that the last left."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence as Several
from typing import NamedTuple, Protocol

from headrace.engines.sequence_spec import SequenceId
from headrace.errors import RequestError
from headrace.escape import printable
from headrace.scheduling.request import Request
from headrace.slots.batch import Output

SHOWN_CHARS = 64  # of an id in a message

Carried = tuple[bytes, ...]  # one for each state of the model, C order


class Part(NamedTuple):
    """Which part of which sequence a request is."""

    id: SequenceId
    is_start: bool = False
    is_end: bool = False


class Sequence:
    """What is known of one sequence.

    Attributes:
        id: As its client chose it.
        waiting: Requests whose turn has not come, oldest first. None stands in the place of a
            start that left without having run: what follows it has no beginning.
        turn: The request whose turn it is: about to be queued, queued or in flight.
        carried: The state after the last request that succeeded; None before the first and after
            the last of a sequence.
        has_seat: It is among those that are served; else it waits for one of them to end.
        idle_at: When it ends if nothing is asked of it, in clock seconds.
    """

    __slots__ = ("carried", "has_seat", "id", "idle_at", "turn", "waiting")

    def __init__(self, sequence_id: SequenceId) -> None:
        self.id = sequence_id
        self.waiting: deque[Request | None] = deque()
        self.turn: Request | None = None
        self.carried: Carried | None = None
        self.has_seat = False
        self.idle_at = 0.0

    def withdraw(self, request: Request) -> bool:
        """Take a request out whose turn has not come; False when it does not wait."""
        for place, other in enumerate(self.waiting):
            if other is request:
                assert request.part is not None
                if request.part.is_start:
                    self.waiting[place] = None
                else:
                    del self.waiting[place]
                self._merge(place)
                return True
        return False

    def _merge(self, place: int) -> None:
        """Let one None stand for several, so that their number is bounded by that of requests."""
        waiting = self.waiting
        for later in (place + 1, place):
            if 0 < later < len(waiting) and waiting[later - 1] is None and waiting[later] is None:
                del waiting[later]


class StateMover(Protocol):
    """Moves states between blocks and sequences; see `States`."""

    def put(self, request: Request, carried: Carried | None) -> None:
        """Write what a request runs on; None for what a sequence starts with."""

    def take(self, outputs: Several[Output]) -> Carried:
        """Return what a request left.

        Raises:
            EngineError: It is no state.
        """


def part_of(request: Request) -> Part:
    """Return the part of a request that is known to have one."""
    assert request.part is not None, "no other was queued"
    return request.part


def unnamed(model: str) -> RequestError:
    """Return what to tell who names no sequence."""
    return RequestError(
        f"inference request to model '{model}' must specify a non-zero or non-empty correlation ID "
        "(parameter sequence_id): it keeps state from one request to the next"
    )


def unstarted(request: Request) -> RequestError:
    """Return what to tell who names a sequence that there is not."""
    shown = printable(str(part_of(request).id)[:SHOWN_CHARS])
    return RequestError(
        f"inference request for sequence {shown} to model '{request.line.model}' must specify the "
        "START flag on the first request of the sequence; one ends with its END flag, when it is "
        "idle for too long, and when its model is loaded anew"
    )
