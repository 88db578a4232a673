"""A plan served by a TensorRT that is none: the real loader, adapter, slots and scheduler."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from headrace.device.base import Device
from headrace.engines.repository import find_models
from headrace.engines.trt_modules import MODULES
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
from helpers.fake_plans import double_plan, plan_bytes
from helpers.fake_tensorrt import World, make_module

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


class TrtServed:
    """A device with a repository of one model, and a scheduler that is stepped by hand."""

    def __init__(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, device: Device, world: World
    ) -> None:
        self.folder = folder
        self.device = device
        self.world = world
        self.blocks = BlockPool(self.device, 64 << 20)
        self.metrics = Metrics()
        self.model: ServedModel
        self.asked: list[Asked] = []
        self.clock = time.monotonic  # of loading
        self._is_loaded = False
        for names in MODULES.values():
            for name in names:  # whatever this machine has
                monkeypatch.setitem(sys.modules, name, None)
        monkeypatch.setitem(sys.modules, "tensorrt", make_module(self.world))

    def load(
        self,
        plan: dict[str, Any] | None = None,
        config: str = "",
        *,
        num_slots: int = 2,
        options: LoadOptions | None = None,
    ) -> ServedModel:
        """Load a plan; it doubles floats of shape (n, 4) when none is given."""
        model = self.folder / "m"
        (model / "1").mkdir(parents=True)
        (model / "1" / "model.plan").write_bytes(plan_bytes(plan or double_plan()))
        text = f'platform: "tensorrt_plan" instance_group {{ count: {num_slots} kind: KIND_GPU }}'
        (model / "config.pbtxt").write_text(f"{text} {config}")
        found = find_models([self.folder])
        assert [str(fault) for fault in found.faults] == []
        loader = Loader(
            self.device,
            self.blocks,
            self.metrics,
            options or LoadOptions(),
            clock=self.clock,
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
            rows=1,
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

    def _on_end(
        self, request: Request, outputs: Sequence[Output] | None, error: Exception | None
    ) -> None:
        (asked,) = (each for each in self.asked if each.request is request)
        if error is not None:
            asked.answers.append(error)
        else:
            assert outputs is not None
            shape, content = outputs[0]
            asked.answers.append(np.frombuffer(bytes(content), np.float32).reshape(shape))
