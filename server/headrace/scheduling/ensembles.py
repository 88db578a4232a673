"""Ensembles at work: each request of one makes requests to its models, whose ends lead on.

Rules
- Called by the thread that is in the core. Requests of steps are submitted like any other: their
  models batch them, bound them and drop them by their own rules.
- A step that ends only leaves word (`_on_end`), for it may do so in the midst of anything; what
  follows from it is done in `advance`, when the core is between two things.
- No block is held between steps. A step's block stays leased from its end to the next `advance`, so
  that steps that can begin there copy straight out of it. What is needed later is copied out, and
  so are the inputs of a step that finds no block. So steps never wait for each other's blocks.
- What is kept is bounded, for all ensembles together: the inputs of requests, and what was copied.
- A request of an ensemble ends once: with its outputs, with the error of the first step that fails,
  or as whoever takes it out says. The other steps are cancelled then.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from headrace.errors import (
    DeviceError,
    EngineError,
    HeadraceError,
    OverloadedError,
    RequestError,
    RetiredError,
    UnavailableError,
)
from headrace.scheduling.admission import Admission
from headrace.scheduling.endings import Endings
from headrace.scheduling.ensemble_queue import EnsembleQueue
from headrace.scheduling.ensemble_run import Run
from headrace.scheduling.request import Request, RequestState
from headrace.scheduling.steps import StepRequest, Tensor, ask, count
from headrace.slots.batch import Output
from headrace.slots.blocks import Block, BlockPool

MAX_LOOKS: Final = 3  # for the version that serves a step, while versions are being replaced

News = tuple[StepRequest, Sequence[Output] | None, Exception | None, Block | None]


class Core(Protocol):
    """The scheduler, as ensembles see it."""

    def submit(self, request: Request, now: float) -> None:
        """Hand a request to its model; raises what refuses it."""

    def cancel(self, request: Request) -> None:
        """Take one back."""


class Ensembles:
    """Leads the requests of all ensembles through their steps.

    Args:
        core: Takes the requests of steps.
        blocks: Where their outputs lie.
        admission: Says whether new requests are let in, and how many bytes may wait.
        endings: How the ensembles' requests end.
        clock: Seconds.
    """

    def __init__(
        self,
        core: Core,
        blocks: BlockPool,
        admission: Admission,
        endings: Endings,
        *,
        clock: Callable[[], float],
    ) -> None:
        self._core = core
        self._blocks = blocks
        self._admission = admission
        self._endings = endings
        self._clock = clock
        self.max_held_bytes = max(admission.max_waiting_bytes, blocks.budget_bytes)
        self.held_bytes = 0
        self.news: deque[News] = deque()  # steps that have ended, and were not looked at
        self._queues: dict[EnsembleQueue, None] = {}  # with requests in them

    def begin(self, request: Request, now: float) -> None:
        """Take a request in and begin its first steps; it may have ended when this returns.

        Raises:
            HeadraceError: It was refused.
        """
        self._admit(request, now)
        queue = request.line.batcher
        assert isinstance(queue, EnsembleQueue), "not an ensemble's line"
        queue.bind(0)  # raises while any of its models is not there
        queue.leave = self.leave
        pairs = list(zip(request.layout.input_shapes, request.hand_over(), strict=True))
        run = queue.runs[request] = Run(queue, request)
        self._queues[queue] = None
        request.state = RequestState.QUEUED
        ready: list[int] = []
        for place, tensor in enumerate(pairs):
            run.held[place] = len(tensor[1])
            self.held_bytes += len(tensor[1])
            ready += run.put(place, tensor)
        self._begin_steps(run, ready, {}, now)

    def settle(self) -> None:
        """End the requests of which steps were ended between two steps of the core."""
        while self.news:
            self.advance(self._clock())

    def advance(self, now: float) -> bool:
        """Do what follows from the steps that have ended; True, for others may begin now.

        What ends meanwhile, as inline models do, is for the next time: this must not take long.
        """
        for _ in range(len(self.news)):
            child, outputs, error, block = self.news.popleft()
            try:
                if not child.run.is_over:
                    child.run.children.discard(child)
                    self._take_in(child, outputs, error, now)
            finally:
                if block is not None:
                    self._blocks.release(block)
        return True

    def leave(self, run: Run) -> None:
        """Forget a run whose request ends, and cancel the steps that are still in."""
        run.is_over = True
        queue = run.queue
        del queue.runs[run.request]
        if not queue.runs:
            self._queues.pop(queue, None)
        self.held_bytes -= sum(run.held.values())
        run.tensors.clear()
        children, run.children = run.children, set()
        for child in sorted(children, key=lambda each: each.index):
            if child.state is not RequestState.ENDED:
                self._core.cancel(child)

    def clear(self) -> list[Request]:
        """Take out every request of every ensemble."""
        return [request for queue in list(self._queues) for request in queue.clear()]

    def _admit(self, request: Request, now: float) -> None:
        line = request.line
        line.check_current()
        self._admission.check_arrival(request, now)
        if len(line.batcher) >= line.max_queue_size:
            line.metrics.dropped("queue_full")
            raise OverloadedError(
                f"Exceeds maximum queue size: {line.max_queue_size} requests are in {line.model}"
            )
        size_bytes = sum(map(len, request.tensors))
        if self.held_bytes + size_bytes > self.max_held_bytes:
            line.metrics.dropped("no_block")
            raise OverloadedError(self._too_much())

    def _begin_steps(
        self, run: Run, ready: Sequence[int], fresh: dict[int, Tensor], now: float
    ) -> None:
        """Ask the models of these steps.

        Args:
            run: The steps'.
            ready: The steps.
            fresh: Tensors that lie in a block which is about to go back, by place.
            now: Clock seconds.
        """
        for index in ready:
            try:
                self._begin_step(run, index, fresh, now)
            except Exception as error:  # noqa: BLE001 -- whatever it is, the request gets an answer
                self._fail(run, index, error)
            if run.is_over:
                return

    def _begin_step(self, run: Run, index: int, fresh: dict[int, Tensor], now: float) -> None:
        for _ in range(MAX_LOOKS):
            bound = run.queue.bind(index)
            if bound.model.line.is_ensemble:  # its own steps may begin when the block has gone back
                for place in fresh.keys() & set(bound.places):
                    self._keep(run, place, fresh)
            child = ask(run, index, bound, now, self._on_end)
            run.children.add(child)
            try:
                self._core.submit(child, now)
                break
            except RetiredError:
                run.children.discard(child)
            except BaseException:
                run.children.discard(child)
                raise
        else:
            raise UnavailableError(f"model '{run.plan.steps[index].model}' is not at ready state")
        if child.state is RequestState.WAITING:
            for place in fresh.keys() & set(bound.places):
                self._keep(run, place, fresh)
            child.tensors = [run.tensors[place][1] for place in bound.places]
        self.held_bytes -= run.begun(index)

    def _keep(self, run: Run, place: int, fresh: dict[int, Tensor]) -> None:
        """Copy a tensor out of the block that it lies in.

        Raises:
            OverloadedError: As much as may be is kept already.
        """
        shape, data = fresh.pop(place)
        size_bytes = len(data)
        if self.held_bytes + size_bytes > self.max_held_bytes:
            raise OverloadedError(self._too_much())
        run.tensors[place] = (shape, bytes(data))
        run.held[place] = size_bytes
        self.held_bytes += size_bytes

    def _too_much(self) -> str:
        return (
            f"Exceeds maximum queue size: ensembles hold {self.held_bytes} bytes of inputs and "
            f"results, {self.max_held_bytes} is the most; the operator can raise "
            "--max-bytes-in-flight"
        )

    def _take_in(
        self,
        child: StepRequest,
        outputs: Sequence[Output] | None,
        error: Exception | None,
        now: float,
    ) -> None:
        """Go on with what a step gave."""
        run = child.run
        if outputs is None:
            assert error is not None
            self._fail(run, child.index, error)
            return
        try:
            fresh = dict(child.bound.results(outputs))
        except HeadraceError as failure:
            self._fail(run, child.index, failure)
            return
        ready: list[int] = []
        for place, tensor in fresh.items():
            ready += run.put(place, tensor)
        if run.has_all:
            self._finish(run)
            return
        self._begin_steps(run, ready, fresh, now)
        try:
            for place in [] if run.is_over else fresh.keys() & run.tensors.keys():
                self._keep(run, place, fresh)
        except OverloadedError as failure:
            self._fail(run, child.index, failure)

    def _finish(self, run: Run) -> None:
        outputs = run.outputs()
        run.measure()
        self.leave(run)
        self._endings.end(run.request, outputs, None)

    def _fail(self, run: Run, index: int, error: Exception) -> None:
        """End a request with the error of one of its steps."""
        if run.is_over:
            return
        self.leave(run)
        told = error
        if isinstance(error, HeadraceError):
            told = copy.copy(error)
            told.args = (f"{run.plan.where(index)}: {error}",)
            if not isinstance(error, EngineError | DeviceError | RequestError):
                run.request.line.metrics.fail(
                    None, "REJECTED"
                )  # who tells the caller counts others
        self._endings.end(run.request, None, told)

    def _on_end(
        self, request: Request, outputs: Sequence[Output] | None, error: Exception | None
    ) -> None:
        """Count a step that has ended, and leave word of it with its block."""
        assert isinstance(request, StepRequest)
        count(request, error, self._clock())
        if request.run.is_over:
            return
        block = None
        if outputs is not None:
            block, request.block = request.block, None
            if block is None:  # an ensemble's: they go when this returns
                outputs = [(shape, bytes(data)) for shape, data in outputs]
        self.news.append((request, outputs, error, block))
