"""What an ensemble's line has in a batcher's place: its requests. It batches nothing itself."""

from __future__ import annotations

from collections.abc import Callable

from headrace.engines.ensemble_plan import EnsemblePlan
from headrace.scheduling.batcher import Drop, Helps, anyway
from headrace.scheduling.ensemble_run import Run
from headrace.scheduling.request import Request
from headrace.scheduling.steps import BoundStep
from headrace.slots.batch import Batch


class EnsembleQueue:
    """The requests of one ensemble.

    Args:
        plan: The ensemble's.
        bind: Returns a step with the version that serves it now; raises UnavailableError.
    """

    def __init__(self, plan: EnsemblePlan, bind: Callable[[int], BoundStep]) -> None:
        self.plan = plan
        self.bind = bind
        self.runs: dict[Request, Run] = {}
        self.leave: Callable[[Run], None] = _nobody  # set by who lets requests in
        self.dropped: list[Drop] = []

    def __len__(self) -> int:
        return len(self.runs)

    def refuse(self, request: Request, now: float) -> Drop | None:  # noqa: ARG002 -- others do
        """Return None: `Ensembles.begin` says who may come in."""
        return None

    def displace(
        self,
        request: Request,  # noqa: ARG002 -- others do
        helps: Helps = anyway,  # noqa: ARG002
    ) -> Drop | None:
        """Return None: first come, first served."""
        return None

    def add(self, request: Request, now: float) -> None:  # noqa: ARG002 -- others do
        """Never called: what comes in begins at once."""
        raise AssertionError(f"{self.plan.name} has no slots to wait for")

    def remove(self, request: Request) -> bool:
        """Take a request out (its caller left), and its steps; False when it has ended."""
        run = self.runs.get(request)
        if run is None:
            return False
        self.leave(run)
        return True

    def next_batch(self, now: float) -> Batch[Request] | None:  # noqa: ARG002 -- others do
        """Return None: the batches are those of the models."""
        return None

    def next_look(self, now: float) -> float | None:  # noqa: ARG002 -- others do
        """Return None: the ends of steps lead on."""
        return None

    def expire(self, now: float) -> None:
        """Do nothing: the steps have the same deadline."""

    def hurry(self) -> None:
        """Do nothing: nobody waits for company here."""

    def clear(self) -> list[Request]:
        """Take every request out, and its steps."""
        runs = list(self.runs.values())
        for run in runs:
            self.leave(run)
        return [run.request for run in runs]


def _nobody(run: Run) -> None:
    raise AssertionError(f"{run.plan.name} has let nobody in")
