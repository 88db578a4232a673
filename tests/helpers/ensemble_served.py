"""A repository of real models and ensembles on a device, loaded and stepped without a transport."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.catalog import ModelCatalog
from headrace.device.base import Device
from headrace.engines.repository import find_models
from headrace.loader import Loader, LoadOptions, load_all
from headrace.metrics import Metrics
from headrace.scheduling.admission import Admission
from headrace.scheduling.request import Request
from headrace.scheduling.scheduler import Scheduler
from headrace.slots.batch import Output
from headrace.slots.blocks import BlockPool
from headrace.slots.poller import Poller
from helpers import onnx_models
from helpers.control_rig import write_chain

Floats = NDArray[np.float32]
REST_S = 60.0


class EnsembleServed:
    """Everything in a folder, served by the real loader, slots and scheduler."""

    def __init__(self, folder: Path, device: Device) -> None:
        self.blocks = BlockPool(device, 64 << 20)
        self.catalog = ModelCatalog()
        parts = (device, self.blocks, Metrics(), LoadOptions())
        loader = Loader(*parts, clock=time.monotonic, catalog=self.catalog)
        assert load_all(find_models([folder]), loader, self.catalog) == 0
        admission = Admission(self.blocks, max_waiting_bytes=1 << 30)
        self.scheduler = Scheduler(self.blocks, Poller(), admission, clock=time.monotonic)
        for model in self.catalog.models():
            self.scheduler.add_line(model.line)

    def submit(self, name: str, x: Floats, answers: list[Any]) -> None:
        """Ask a model of one input and one output; the answer, or the error, goes into a list."""

        def on_end(_: Request, outputs: Sequence[Output] | None, error: Exception | None) -> None:
            if outputs is None:
                answers.append(error)
                return
            shape, data = outputs[0]
            answers.append(np.frombuffer(bytes(data), np.float32).reshape(shape))

        served, now = self.catalog.find(name, ""), time.monotonic()
        request = Request(
            *(served.line, served.plan([x.shape], [x.nbytes]), [x.tobytes()]),
            rows=x.shape[0],
            deadline=None,
            received_at=now,
            parsed_at=now,
            on_end=on_end,
        )
        self.scheduler.submit(request, now)

    def run(self) -> None:
        """Step until nothing is left to do."""
        give_up_at = time.monotonic() + REST_S
        while not self.scheduler.is_idle:
            self.scheduler.step(time.monotonic())
            assert time.monotonic() < give_up_at, "the core does not come to rest"

    def close(self) -> None:
        """Close in the order of the application."""
        self.scheduler.close()
        self.catalog.close()
        self.blocks.close()


def chain_answers(folder: Path, device: Device, num_requests: int) -> list[tuple[Floats, Any]]:
    """Ask an ensemble of models that add 1, 10 and 100; return what was asked and answered."""
    names = [f"adds_{value}" for value in (1, 10, 100)]
    for name in names:
        onnx_models.save(onnx_models.adds(int(name[5:])), folder / name / "1/model.onnx")
    write_chain(folder, "sum", *names)
    rig = EnsembleServed(folder, device)
    try:
        rng = np.random.default_rng(1)
        asked = [rng.integers(-9, 9, (1 + each % 4, 4)) for each in range(num_requests)]
        answers: list[list[Any]] = [[] for _ in asked]
        for x, answer in zip(asked, answers, strict=True):
            rig.submit("sum", x.astype(np.float32), answer)
        rig.run()
        assert rig.blocks.num_leased == 0
        return [(x.astype(np.float32), a) for x, (a,) in zip(asked, answers, strict=True)]
    finally:
        rig.close()
