"""A batch: the requests that one lane runs together, as the slot sees them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, Self, TypeVar

from headrace.engines.base import Layout, Shape
from headrace.slots.blocks import Block

if TYPE_CHECKING:
    from headrace.slots.lane import Lane

Output = tuple[Shape, memoryview | bytes]


class Timing(NamedTuple):
    """When a batch left the queue, and its seconds on the device; NaN where not measured.

    On the CPU `h2d_s` and `d2h_s` are what it took to gather several requests and to split their
    outputs; one request alone is not copied. On a GPU the CPU's part of gathering is in `h2d_s` as
    far as the stream had to wait for it.
    """

    started_at: float  # clock seconds
    h2d_s: float
    execute_s: float
    d2h_s: float
    ended_at: float  # clock seconds: when the work was done, or was seen to be done (a GPU's)

    @property
    def took_s(self) -> float:
        """What its slot was busy for, copies included; NaN where nothing was measured."""
        if isnan(self.h2d_s):  # nothing was copied
            return self.execute_s
        return self.h2d_s + self.execute_s + self.d2h_s


class Placed(Timing):
    """A timing with its place: which lane it was, and when the device took the batch up.

    Only slots with an anchor make these (`slots/anchor.py`).
    """

    lane: Lane
    begun_at: float  # clock seconds

    @classmethod
    def of(cls, timing: Timing, lane: Lane, begun_at: float) -> Self:
        """Add the place to a timing."""
        placed = cls(*timing)
        placed.lane = lane
        placed.begun_at = begun_at
        return placed


class ClientPtr(NamedTuple):
    """Where a tensor lies, or is wanted, in memory of the client that the device copies itself."""

    ptr: int
    is_on_device: bool  # else on the host, and pinned


class Direct(NamedTuple):
    """Tensors that the device copies from and to memory of the client, by their place."""

    inputs: Mapping[int, ClientPtr]
    outputs: Mapping[int, ClientPtr]


class Staged(Protocol):
    """A request whose inputs lie in its block; all that a slot needs to know of it."""

    layout: Layout
    block: Block | None  # leased from admission to reply
    direct: Direct | None  # those that do not lie there
    rows: int


StagedT = TypeVar("StagedT", bound=Staged)


@dataclass(slots=True, eq=False)
class Batch(Generic[StagedT]):
    """Requests that run together.

    Attributes:
        layout: That of its rows, perhaps padded.
        together: How many batches of the model are at work when it begins, itself included; 0 when
            nobody can tell.
        is_behind: It is meant for the lane behind the work that ends first, though a slot is idle.
    """

    requests: Sequence[StagedT]
    layout: Layout
    rows: int
    together: int = 1
    is_behind: bool = False

    @property
    def is_alone(self) -> bool:
        """Whether it is one request whose block is laid out as the batch is: used as it stands."""
        return len(self.requests) == 1 and self.requests[0].layout is self.layout

    @property
    def is_direct(self) -> bool:
        """Whether some of its tensors lie in memory of clients, and in no block."""
        return any(request.direct is not None for request in self.requests)
