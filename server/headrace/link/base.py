"""What the front door may ask of the engine side, wherever that runs.

Today both are in one process (`link/local.py`). Nothing above or below may assume more than this:
bytes go in with a request, outputs come out of its block while `on_end` runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from headrace.engines.base import Layout, Shape
from headrace.engines.model_spec import ModelSpec
from headrace.errors import HeadraceError
from headrace.response_cache.store import ModelCache
from headrace.scheduling.line import Line
from headrace.scheduling.request import Request
from headrace.slots.blocks import BlockPool
from headrace_proto.v1 import model_config_pb2 as config_pb


class Link(Protocol):
    """The way from the front door to the scheduler and back."""

    def submit(self, request: Request, now: float) -> None:
        """Hand a request over; its `on_end` is called exactly once unless this raises.

        Raises:
            HeadraceError: The request was refused.
            RetiredError: Another version may serve it; nothing was counted.
        """

    def answer(self, request: Request) -> None:
        """End a request at once, without outputs: who made it knows its reply.

        Raises:
            HeadraceError: The request was refused, as `submit` would.
            RetiredError: Another version may serve it.
        """

    def cancel(self, request: Request) -> None:
        """Say that the caller has left; the request still ends, with an AbandonedError."""

    def step(self, now: float) -> bool:
        """Do what can be done now; True when there is more to do at once."""

    def next_look(self, now: float) -> float | None:
        """Return when to step again though nothing happens, in clock seconds; None for never."""

    @property
    def is_idle(self) -> bool:
        """Whether no request waits and none is in flight."""

    @property
    def is_at_rest(self) -> bool:
        """Whether it is idle, and there is nothing to do later unless a request comes."""

    @property
    def is_polling(self) -> bool:
        """Whether something is in flight, so that `step` must be called again to see it end."""

    @property
    def due_at(self) -> float:
        """When something in flight is likely to be done, in clock seconds; past when unknown."""

    def refuse_new(self) -> None:
        """From now on refuse every request; what is in is served."""

    def close(self) -> None:
        """Refuse new requests and end those that never reached the device."""


class PinLink(Protocol):
    """How a stream gets a slot of its own."""

    def pin(self, line: Line) -> Line:
        """Take a slot of a model out for one stream; return the line that leads to it alone.

        Raises:
            NoSlotError: There is none to spare.
            RetiredError: The line takes nothing more.
        """

    def unpin(self, line: Line, pinned: Line) -> None:
        """Give the slot back to all; what waits for it ends, what is in flight is served."""


class StreamLink(Link, PinLink, Protocol):
    """What streams need of the engine side."""


class LineLink(Protocol):
    """How models come and go on the engine side while it works; any thread may call it."""

    def add_line(self, line: Line, blocks: BlockPool) -> None:
        """Serve a line from now on, and take over the free blocks that it was warmed up with."""

    def retire_line(self, line: Line) -> None:
        """From now on raise RetiredError for every request of a line; what is in is served."""

    def is_done_with(self, line: Line) -> bool:
        """Whether every request that came for a line has been told how it ended."""

    def drop_waiting(self, line: Line, error: HeadraceError) -> None:
        """End what waits for a line with `error`, answered on the caller's thread."""

    def remove_line(self, line: Line) -> None:
        """Forget a line that is done with, so that its slots can be closed."""


class Served(Protocol):
    """One version of one model, as the front door sees it."""

    spec: ModelSpec  # its inputs in the engine's order
    config: config_pb.ModelConfig
    line: Line
    cache: ModelCache | None  # of its replies; None where none are kept

    @property
    def is_ready(self) -> bool:
        """Whether a request could be answered now."""

    def plan(
        self, shapes: Sequence[Shape], sizes: Sequence[int], values: Sequence[bytes] = ()
    ) -> Layout:
        """Lay out a call; the same arguments give the same layout for as long as it is kept.

        Args:
            shapes: The client's shape of each input, in the spec's order.
            sizes: Bytes of each input.
            values: The bytes of each shape tensor among the inputs, in their order.

        Raises:
            RequestError: No optimization profile takes these shapes or values.
        """


class Catalog(Protocol):
    """All models that the server knows."""

    generation: int  # changes whenever the same name may lead to something else

    def find(self, name: str, version: str) -> Served:
        """Return the version of a model that serves this request.

        Args:
            name: The model's name.
            version: A number, or "" for the newest that is ready.

        Raises:
            NotFoundError: There is no such model or version.
            RequestError: The version is not a number.
            UnavailableError: It is known, but not ready.
        """

    def index(self) -> list[IndexEntry]:
        """Return every model version with its state, in order of name and version."""

    @property
    def is_ready(self) -> bool:
        """Whether the server as a whole can take requests."""


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """A line of the repository index; the state in Triton's words."""

    name: str
    version: str
    state: str  # "READY", "UNAVAILABLE", "LOADING"
    reason: str
    served: Served | None
