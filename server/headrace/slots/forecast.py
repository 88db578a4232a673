"""What each layout takes on one slot, learnt from the device's own event times.

Event times are taken on the device, so looking late does not make the next forecast later. What
shares the device with this slot counts in them: under load the forecast grows, and its spread.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isnan

from headrace.engines.base import Layout
from headrace.slots.batch import Timing
from headrace.slots.estimate import Estimate

MAX_LAYOUTS = 256  # as many as a lane keeps bindings for


class Forecast:
    """Durations on one slot, by layout.

    Attributes:
        usual_s: What batches of so many rows take on any slot of the model, for layouts that have
            not run here; 0.0 when unknown.
    """

    __slots__ = ("_estimates", "usual_s")

    def __init__(self) -> None:
        self._estimates: dict[Layout, Estimate] = {}
        self.usual_s: Callable[[int], float] = _unknown

    def least_s(self, layout: Layout) -> float:
        """Return what a run of this layout will hardly fall below, in seconds; 0 when unknown."""
        estimate = self._estimates.get(layout)
        return 0.0 if estimate is None else estimate.least_s

    def mean_s(self, layout: Layout) -> float:
        """Return what a run of this layout is likely to take, in seconds; 0 when unknown."""
        estimate = self._estimates.get(layout)
        if estimate is not None:
            return estimate.mean_s
        return 0.0 if layout.kind is None else self.usual_s(layout.runs_as.input_shapes[0][0])

    def learn(self, layout: Layout, timing: Timing) -> None:
        """Take in how long a run took; one that was not measured on the device teaches nothing."""
        took_s = timing.took_s
        if isnan(took_s):
            return
        estimate = self._estimates.get(layout)
        if estimate is not None:
            estimate.learn(took_s)
            return
        if len(self._estimates) >= MAX_LAYOUTS:
            del self._estimates[next(iter(self._estimates))]
        self._estimates[layout] = Estimate(took_s)


def _unknown(_rows: int) -> float:
    return 0.0
