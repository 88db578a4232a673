"""One request of an ensemble while its steps run: what is there, and what may begin. Pure.

Rules
- A tensor is put once, and kept until every step that reads it has taken it; an output, until the
  ensemble ends.
- A step may begin once, when all its tensors are there.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import nan
from typing import TYPE_CHECKING

from headrace.engines.ensemble_plan import EnsemblePlan
from headrace.scheduling.request import Request, Stages
from headrace.slots.batch import Output, Timing

if TYPE_CHECKING:
    from headrace.scheduling.ensemble_queue import EnsembleQueue
    from headrace.scheduling.steps import StepRequest, Tensor


class Run:
    """The state of one request.

    Attributes:
        request: The ensemble's own.
        queue: Of the ensemble's line.
        tensors: What is there and still needed, by place.
        held: Bytes of host memory that are kept for them, by place.
        children: Requests of steps that have not ended.
        is_over: Its request has ended, or is about to.
    """

    __slots__ = (
        "_ended_at",
        "_needs",
        "_num_missing",
        "_took",
        "_uses",
        "children",
        "held",
        "is_over",
        "plan",
        "queue",
        "request",
        "tensors",
    )

    def __init__(self, queue: EnsembleQueue, request: Request) -> None:
        plan = queue.plan
        self.plan: EnsemblePlan = plan
        self.queue = queue
        self.request = request
        self.tensors: dict[int, Tensor] = {}
        self.held: dict[int, int] = {}
        self.children: set[StepRequest] = set()
        self.is_over = False
        self._needs = list(plan.num_needed)
        self._uses = list(plan.num_uses)
        self._num_missing = len(plan.outputs)
        self._took: list[Stages] = []  # of the steps that have ended
        self._ended_at = request.parsed_at

    @property
    def has_all(self) -> bool:
        """Whether every output of the ensemble is there."""
        return not self._num_missing

    def put(self, place: int, tensor: Tensor) -> list[int]:
        """Take a tensor in; return the steps that may begin now."""
        assert place not in self.tensors, "a tensor was put twice"
        plan = self.plan
        self.tensors[place] = tensor
        self._num_missing -= place in plan.outputs
        ready = []
        for step in plan.readers[place]:
            self._needs[step] -= 1
            if not self._needs[step]:
                ready.append(step)
        return ready

    def begun(self, step: int) -> int:
        """Let go of what only this step still needed; return the bytes that are kept no more."""
        freed_bytes = 0
        for place in set(self.plan.steps[step].inputs.values()):
            self._uses[place] -= 1
            if not self._uses[place]:
                del self.tensors[place]
                freed_bytes += self.held.pop(place, 0)
        return freed_bytes

    def outputs(self) -> list[Output]:
        """Return the outputs of the ensemble, in its own order."""
        return [self.tensors[place] for place in self.plan.outputs]

    def account(self, stages: Stages, ended_at: float) -> None:
        """Add what a step took."""
        self._took.append(stages)
        self._ended_at = max(self._ended_at, ended_at)

    def measure(self) -> None:
        """Write into the ensemble's request what its steps took together."""
        _, *stages, _, _ = zip(*self._took, strict=True)
        stage_s, queue_s, h2d_s, execute_s, d2h_s = map(_sum, stages)
        request = self.request
        request.staged_at = request.parsed_at + stage_s
        started_at = request.staged_at + queue_s
        request.timing = Timing(started_at, h2d_s, execute_s, d2h_s, self._ended_at)


def _sum(took_s: Iterable[float]) -> float:
    """Add what was measured: NaN only where nothing was."""
    measured = [each for each in took_s if each == each]  # no NaN  # noqa: PLR0124
    return sum(measured) if measured else nan
