"""A model served by the real loader, slots and scheduler, which a test steps by hand."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.device.base import Device
from headrace.engines.repository import find_models
from headrace.loader import Loader, LoadOptions
from headrace.metrics import Metrics
from headrace.model import ServedModel
from headrace.scheduling.admission import Admission
from headrace.scheduling.request import Request
from headrace.scheduling.scheduler import Scheduler
from headrace.slots.batch import Output
from headrace.slots.blocks import BlockPool
from headrace.slots.poller import Poller
from headrace.slots.slot import Slot
from headrace_proto.datatypes import DATATYPES

Array = NDArray[Any]


@dataclass(eq=False)
class Asked:
    """A request and how it ended."""

    inputs: Sequence[Array]
    request: Request
    answers: list[Array | Exception] = field(default_factory=list)

    @property
    def answer(self) -> Array:
        """Its answer; it must have ended once, and well."""
        (answer,) = self.answers
        assert not isinstance(answer, Exception), answer
        return answer

    @property
    def error(self) -> Exception:
        """The error that it ended with, once."""
        (error,) = self.answers
        assert isinstance(error, Exception), "it was answered"
        return error


class CoreServed:
    """A device with a repository of one model of one output, and a scheduler."""

    def __init__(self, folder: Path, device: Device) -> None:
        self.folder = folder
        self.device = device
        self.blocks = BlockPool(self.device, 64 << 20)
        self.metrics = Metrics()
        self.model: ServedModel
        self.asked: list[Asked] = []
        self.clock = time.monotonic  # of loading
        self._is_loaded = False

    def serve(self, options: LoadOptions | None = None) -> ServedModel:
        """Load the model that lies in the folder, version 1."""
        found = find_models([self.folder])
        assert [str(fault) for fault in found.faults] == []
        loader = Loader(
            self.device, self.blocks, self.metrics, options or LoadOptions(), clock=self.clock
        )
        self.model = loader.load(found.models[0], 1)
        self._is_loaded = True
        self.poller = Poller()
        admission = Admission(self.blocks, max_waiting_bytes=1 << 30)
        self.scheduler = Scheduler(self.blocks, self.poller, admission, clock=time.monotonic)
        self.scheduler.add_line(self.model.line)
        return self.model

    @property
    def slots(self) -> Sequence[Slot]:
        """The model's."""
        return self.model.line.pool.slots

    @property
    def misses(self) -> dict[str, int]:
        """Reasons why batches ran without a graph, since the load."""
        assert self.model.graphs is not None
        return {str(why): count for why, count in self.model.graphs.num_misses.items() if count}

    def submit(self, *inputs: Array) -> Asked:
        """Submit a request."""
        specs = self.model.spec.inputs
        layout = self.model.plan(
            [each.shape for each in inputs],
            [each.nbytes for each in inputs],
            [
                each.tobytes()
                for spec, each in zip(specs, inputs, strict=True)
                if spec.is_shape_tensor
            ],
        )
        now = time.monotonic()
        request = Request(
            self.model.line,
            layout,
            tuple(each.tobytes() for each in inputs),
            rows=inputs[0].shape[0] if self.model.spec.max_batch_size else 1,
            deadline=None,
            received_at=now,
            parsed_at=now,
            on_end=self._on_end,
        )
        self.asked.append(Asked(inputs, request))
        self.scheduler.submit(request, now)
        return self.asked[-1]

    def ask(self, *inputs: Array) -> Array:
        """Serve one request alone and return its answer."""
        asked = self.submit(*inputs)
        self.run()
        return asked.answer

    def run(self, timeout_s: float = 30.0) -> None:
        """Step until nothing is left to do."""
        give_up_at = time.monotonic() + timeout_s
        while not self.scheduler.is_idle:
            self.scheduler.step(time.monotonic())
            self.advance()
            assert time.monotonic() < give_up_at, "the core does not come to rest"

    def advance(self) -> None:
        """Let the device work, where it does not do so by itself."""

    def close(self) -> None:
        """Close in the order of the application."""
        if self._is_loaded:
            self.run()
            self.scheduler.close()
            self.model.close()
        self.blocks.close()

    @property
    def _dtype(self) -> Any:
        return DATATYPES[self.model.spec.outputs[0].datatype].numpy

    def _on_end(
        self, request: Request, outputs: Sequence[Output] | None, error: Exception | None
    ) -> None:
        (asked,) = (each for each in self.asked if each.request is request)
        if error is not None:
            asked.answers.append(error)
        else:
            assert outputs is not None
            shape, content = outputs[0]
            asked.answers.append(np.frombuffer(bytes(content), self._dtype).reshape(shape))
