"""The core on a real GPU with ONNX Runtime's CUDA provider: slots with a session each.

Imports cuda-bindings and onnxruntime: only to be imported where a GPU and its package were found.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.engines.base import Layout
from headrace.engines.kinds import Kinds
from headrace.engines.layout import num_elements, plan_layout
from headrace.engines.ort import OrtEngine
from headrace.scheduling.request import Request
from headrace.slots.graphs import GraphTally
from headrace.slots.warmup import capture_graphs
from headrace_proto.datatypes import DATATYPES
from helpers.cuda_core_rig import CudaRig
from helpers.delay_batcher import DelayBatcher

Array = npt.NDArray[Any]


class OrtCudaRig(CudaRig):
    """Slots of one ONNX model with one output."""

    def __init__(self, path: Path, *, num_slots: int = 2, has_graphs: bool = False) -> None:
        super().__init__(
            num_slots=num_slots,
            budget_bytes=256 << 20,
            make_engine=lambda device: OrtEngine(path, device),
        )
        self.tally = GraphTally()
        if has_graphs:
            for slot in self.slots:
                slot.use_graphs(self.tally)
        self.kinds: Kinds | None = None
        self._padded_to: Mapping[int, int] = {}
        self._by_shape: dict[tuple[tuple[int, ...], ...], Layout] = {}

    def call(self, *inputs: Array) -> Request:
        """Submit a request."""
        now = time.monotonic()
        request = Request(
            self.line,
            self.layout(inputs),
            tuple(array.tobytes() for array in inputs),
            rows=1 if self.kinds is None else inputs[0].shape[0],
            deadline=None,
            received_at=now,
            parsed_at=now,
            on_end=self._on_end,
        )
        self.replies[request] = []
        self.scheduler.submit(request, now)
        return request

    def answer(self, request: Request) -> Array:
        """Return what came back; raise what failed."""
        (reply,) = self.replies[request]
        if isinstance(reply, Exception):
            raise reply
        (spec,) = self.engine.signature.outputs
        assert request.layout.output_shapes is not None
        return np.frombuffer(reply, DATATYPES[spec.datatype].numpy).reshape(
            request.layout.output_shapes[0]
        )

    def ask(self, *inputs: Array) -> Array:
        """Submit a request and wait for its answer."""
        request = self.call(*inputs)
        self.run()
        return self.answer(request)

    def batch(self, max_rows: int, padded_to: Mapping[int, int] | None = None) -> None:
        """From now on run together what waits.

        Args:
            max_rows: Of a batch.
            padded_to: Rows → rows that are run in their place.
        """
        self.kinds = Kinds(self.engine, max_rows)
        self.line.batcher = DelayBatcher(max_rows)
        self._padded_to = padded_to or {}

    def warm(self, x: Array) -> int:
        """Settle the kinds on graphs of as many rows, captured now; return how many there are."""
        assert self.kinds is not None
        rows = sorted(set(self._padded_to.values()), reverse=True)
        layouts = [self.layout((np.repeat(x[:1], each, 0),)) for each in rows]
        captured = sum(capture_graphs(slot, layouts, self.blocks) for slot in self.slots)
        least = {
            layout: min(few for few, more in self._padded_to.items() if more == each)
            for layout, each in zip(layouts, rows, strict=True)
        }
        self.kinds.settle(layouts, least)
        return captured

    def layout(self, inputs: tuple[Array, ...]) -> Layout:
        """Return the layout of a call; the same for the same shapes."""
        shapes = tuple(array.shape for array in inputs)
        if self.kinds is not None:
            return self.kinds.lay_out(shapes, [array.nbytes for array in inputs])
        layout = self._by_shape.get(shapes)
        if layout is None:
            outputs = self.engine.output_shapes(shapes)
            (spec,) = self.engine.signature.outputs
            itemsize = DATATYPES[spec.datatype].itemsize_bytes
            sizes = [num_elements(shape) * itemsize for shape in outputs]
            layout = plan_layout(shapes, [array.nbytes for array in inputs], outputs, sizes)
            self._by_shape[shapes] = layout
        return layout
