"""A request from the moment it is checked until its one reply or its one error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from math import nan
from typing import TYPE_CHECKING, Any

from headrace.engines.base import Layout
from headrace.errors import DeviceError, EngineError, HeadraceError, RequestError
from headrace.slots.batch import Direct, Output, Timing
from headrace.slots.blocks import Block

if TYPE_CHECKING:
    from headrace.scheduling.line import Line
    from headrace.scheduling.sequence import Part

Buffer = bytes | memoryview
Stages = tuple[float, float, float, float, float, float, float, float]  # as `ModelMetrics.record`


class RequestState(Enum):
    """Where a request is; it only ever moves down this list."""

    NEW = "new"
    WAITING = "waiting for a block"
    QUEUED = "queued"
    IN_FLIGHT = "in flight"
    ENDED = "ended"


class Request:
    """One inference request; compared by identity.

    Attributes:
        tensors: The inputs' bytes in the engine's order, as they lie in the message; let go of once
            they are copied into the block.
        rows: The batch dimension, 1 for models without one.
        deadline: Clock seconds, None for no deadline.
        priority: 1 is the most urgent; 0 for the model's default.
        timeout_s: How long it may wait in the queue, by its own wish; 0 for the model's default.
        part: Of which sequence it is a part, where the model keeps state; its states' tensors are
            then empty, and written into the block when its turn comes.
        source: Whose it is, among those that share the model fairly; None when it does not say.
        on_end: Called exactly once, with the outputs or with the error, before the block goes back:
            memoryviews among the outputs are valid only during the call.
        tag: The front door's own.
        is_abandoned: The caller left while the request was in flight; its result is dropped.
        direct: Which of its tensors the device copies from and to memory of the client.
        is_step: It is an ensemble's, which has been let in.
        batch_rows: Of the batch that it ran in.
        is_first: Whether it stands for that batch where batches are counted.
        claims: Where replies are held back, one for each batch, shared by its requests: who leaves
            first takes it, and stands for the batch.
    """

    __slots__ = (
        "batch_rows",
        "block",
        "claims",
        "deadline",
        "is_abandoned",
        "is_first",
        "layout",
        "line",
        "on_end",
        "parsed_at",
        "part",
        "priority",
        "received_at",
        "rows",
        "source",
        "staged_at",
        "state",
        "tag",
        "tensors",
        "timeout_s",
        "timing",
    )

    is_step = False
    direct: Direct | None = None

    def __init__(
        self,
        line: Line,
        layout: Layout,
        tensors: Sequence[Buffer],
        *,
        rows: int,
        deadline: float | None,
        received_at: float,
        parsed_at: float,
        on_end: Callable[[Request, Sequence[Output] | None, Exception | None], None],
        tag: Any = None,
        priority: int = 0,
        timeout_s: float = 0.0,
        source: str | None = None,
    ) -> None:
        self.line = line
        self.layout = layout
        self.tensors = tensors
        self.rows = rows
        self.deadline = deadline
        self.received_at = received_at
        self.parsed_at = parsed_at
        self.staged_at = nan
        self.timing: Timing | None = None  # set when its outputs are there
        self.on_end = on_end
        self.tag = tag
        self.priority = priority
        self.timeout_s = timeout_s
        self.source = source
        self.part: Part | None = None
        self.batch_rows = rows
        self.is_first = True
        self.claims: list[None] | None = None
        self.block: Block | None = None
        self.state = RequestState.NEW
        self.is_abandoned = False

    def stage(self, block: Block) -> None:
        """Make the one host copy: the tensors' bytes from the message into the block."""
        view = block.view
        for offset, tensor in zip(self.layout.input_offsets, self.tensors, strict=True):
            view[offset : offset + len(tensor)] = tensor
        if self.layout.padded_to is not None:
            self._clear_padding(view, self.layout.padded_to)
        self.block = block
        self.tensors = ()

    def forfeit(self) -> None:
        """Give the block up for good: the device that has failed may still use it."""
        self.block = None

    def hand_over(self) -> Sequence[Buffer]:
        """Let go of the tensors and return them, for an ensemble that hands them on.

        Raises:
            RequestError: They cannot be read.
        """
        tensors, self.tensors = self.tensors, ()
        return tensors

    def record(self, now: float) -> Stages | None:
        """Count a reply that has left; return what its stages took, None when it did not run."""
        timing = self.timing
        if timing is None:
            return None
        received_at, parsed_at, staged_at = self.received_at, self.parsed_at, self.staged_at
        started_at, h2d_s, execute_s, d2h_s, ended_at = timing
        stages = (
            parsed_at - received_at,
            staged_at - parsed_at,
            started_at - staged_at,
            h2d_s,
            execute_s,
            d2h_s,
            now - ended_at,
            now - received_at,
        )
        self.line.metrics.record(stages, self.rows, self.is_first, self.batch_rows)
        return stages

    def record_failure(self, error: Exception) -> None:
        """Count what the run, the reply or a bug has brought; who refuses a request counts that."""
        if isinstance(error, EngineError | DeviceError):
            self.line.metrics.fail(None, "BACKEND")
        elif isinstance(error, RequestError) or not isinstance(error, HeadraceError):
            self.line.metrics.fail(None, "OTHER")

    def let_go(self) -> None:
        """Give back what the request holds beside its block: it has ended, or was refused."""

    def _clear_padding(self, view: memoryview, padded: Layout) -> None:
        """Make the rows behind the request's own zeros: the block held another request's before."""
        layout = self.layout
        sizes = zip(layout.input_offsets, layout.input_sizes, padded.input_sizes, strict=True)
        for offset, size, padded_size in sizes:
            view[offset + size : offset + padded_size] = bytes(padded_size - size)

    def end(self, outputs: Sequence[Output] | None, error: Exception | None) -> None:
        """End the request, once, with a reply or with an error."""
        assert self.state is not RequestState.ENDED, "a request ended twice"
        self.state = RequestState.ENDED
        self.tensors = ()
        self.on_end(self, outputs, error)
