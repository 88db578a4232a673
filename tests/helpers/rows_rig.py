"""The core on the virtual device with batches: every byte of a payload is a row."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from headrace.engines.base import Kind, Layout
from headrace.engines.batching_spec import BatchingSpec
from headrace.engines.layout import plan_layout
from helpers.core_rig import Asked, Rig

MAX_ROWS = 8


class RowsRig(Rig):
    """What is queued when a lane is free runs together, as the spec lets it."""

    def __init__(self, spec: BatchingSpec | None = None, **options: Any) -> None:
        self.kind = Kind(self._plan, MAX_ROWS)
        super().__init__(batching=spec or BatchingSpec(max_rows=MAX_ROWS), **options)

    def layout(self, size: int) -> Layout:
        """Return the kind's layout for so many rows."""
        return self.kind.layout(size)

    def ask(self, payload: bytes, *, deadline: float | None = None, **wishes: Any) -> Asked:
        """Submit a request of as many rows as bytes, with these wishes; raises what refuses it."""
        asked = self.request(payload, deadline=deadline)
        asked.request.rows = asked.request.batch_rows = len(payload)
        for name, value in wishes.items():
            setattr(asked.request, name, value)
        self.scheduler.submit(asked.request, self.clock())
        return asked

    def _plan(self, rows: int) -> Layout:
        return replace(plan_layout([(rows,)], [rows], [(rows,)], [rows]), kind=self.kind)
