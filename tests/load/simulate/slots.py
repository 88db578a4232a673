"""Slots in virtual time: how long each batch computes, and what is known of that beforehand."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np

from headrace.engines.base import Kind, Layout
from headrace.engines.layout import plan_layout
from headrace.slots.batch import Batch
from headrace.slots.lane import Lane
from headrace.slots.slot import Slot
from helpers.core_rig import AddOne
from load.simulate.curves import ServiceCurve
from load.simulate.device import SharedDevice

ROW_BYTES: Final = 8

Draw = Callable[[int], float]  # rows → seconds that this batch takes


class Bound(NamedTuple):
    """A batch that was put on a stream."""

    at_s: float
    slot: int
    batch: Batch[Any]
    was_idle: bool  # nothing else was in flight on the slot


class TimedSlot(Slot):
    """A slot that tells the device how long each batch computes, and notes it in `log`."""

    def __init__(
        self, device: SharedDevice, engine: AddOne, index: int, draw: Draw, log: list[Bound]
    ) -> None:
        stream = device.open_stream()
        context = engine.open_context(stream)
        super().__init__(index, device, stream, context, clock=lambda: device.now, has_marks=True)
        self._timed = device
        self.draw = draw
        self._log = log

    def enqueue(self, lane: Lane, batch: Batch[Any]) -> None:
        """Put the batch on the stream, with a duration of its own."""
        self._log.append(Bound(self._timed.now, self.index, batch, not self.in_flight))
        self._timed.launch_s = self.draw(batch.layout.runs_as.input_shapes[0][0])
        super().enqueue(lane, batch)


def noisy(curve: ServiceCurve, seed: int) -> Draw:
    """Return service times that stray from the curve, lognormally, with its spread."""
    rng = np.random.default_rng([seed, 1])  # apart from the arrivals
    sigma = math.sqrt(math.log1p(curve.spread**2))
    return lambda rows: curve.mean_s(rows) * rng.lognormal(-sigma * sigma / 2, sigma)


def exponential(curve: ServiceCurve, seed: int) -> Draw:
    """Return service times without memory."""
    rng = np.random.default_rng([seed, 1])  # apart from the arrivals
    return lambda rows: curve.mean_s(rows) * rng.exponential()


class Calls:
    """Requests that differ in their rows alone, `ROW_BYTES` a row in and out."""

    def __init__(self, sizes: Sequence[int] = (), *, has_kind: bool = True) -> None:
        """Start without layouts.

        Args:
            sizes: What batches are padded to, up to the largest of them; nothing where it is empty.
            has_kind: Whether they can share a batch.
        """
        self.kind = Kind(self._batch)
        self._sizes = sizes
        self._has_kind = has_kind
        self._layouts: dict[int, Layout] = {}

    def layout(self, rows: int) -> Layout:
        """Return the layout of one request, always the same one."""
        if rows not in self._layouts:
            size_bytes, shape = rows * ROW_BYTES, (rows, ROW_BYTES)
            planned = plan_layout([shape], [size_bytes], [shape], [size_bytes])
            self._layouts[rows] = replace(planned, kind=self.kind if self._has_kind else None)
        return self._layouts[rows]

    def _batch(self, rows: int) -> Layout:
        padded = min((size for size in self._sizes if size >= rows), default=rows)
        target = self.layout(padded)
        if padded == rows:
            return target
        size_bytes, shape = rows * ROW_BYTES, (rows, ROW_BYTES)
        return replace(
            target,
            input_shapes=(shape,),
            input_sizes=(size_bytes,),
            output_shapes=(shape,),
            output_sizes=(size_bytes,),
            padded_to=target,
        )
