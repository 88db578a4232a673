"""Service curves: how long the device takes for a batch of so many rows, as it was measured."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np


@dataclass(frozen=True, slots=True)
class ServiceCurve:
    """Mean service times of a model.

    Attributes:
        points: (rows, seconds) by rising rows; straight lines between them and beyond the last two.
        spread: Standard deviation of a service time over its mean.
        max_rows: Of a batch.
        sizes: What batches are padded to; empty where they run as they are.
        speed_ups: How many times faster than one so many batches together make progress, where the
            device runs several at once; empty where one computes at a time.
    """

    name: str
    points: tuple[tuple[int, float], ...]
    spread: float = 0.05
    max_rows: int = 32
    sizes: tuple[int, ...] = ()
    speed_ups: tuple[tuple[int, float], ...] = ()

    def mean_s(self, rows: int) -> float:
        """Return the mean service time of a batch that is alone on the device."""
        return _along(self.points, rows)

    def speed_up(self, num_batches: int) -> float:
        """Return how much faster so many batches together make progress than one."""
        return _along(self.speed_ups, num_batches) if self.speed_ups else 1.0

    def rows_per_s(self, num_slots: int = 1) -> float:
        """Return the most that the device can do: at the best size, with every slot busy."""
        best = max(rows / self.mean_s(rows) for rows in range(1, self.max_rows + 1))
        return best * self.speed_up(num_slots)


CURVES: Final[Mapping[str, ServiceCurve]] = {
    # Two shared cores (Xeon, Sapphire Rapids class), ONNX Runtime with one thread:
    # `python -m load.simulate.measure mlp`. Batches are nearly free of cost here.
    "mlp_cpu": ServiceCurve(
        "mlp_cpu",
        ((1, 21.1e-6), (2, 22.1e-6), (4, 27.5e-6), (8, 35.9e-6), (16, 48.8e-6), (32, 79.7e-6)),
        spread=0.09,
    ),
    # The same of resnet50_fp32: one core is full with one row, and batches bring next to nothing.
    "resnet50_cpu": ServiceCurve(
        "resnet50_cpu",
        ((1, 0.0953), (2, 0.1906), (4, 0.3849), (8, 0.8006), (16, 1.4715), (32, 2.8948)),
        spread=0.013,
        speed_ups=((1, 1.0), (2, 2.0)),  # a core for each of two slots, as conv was seen to have
    ),
    # ResNet-50 fp16 on an H200, 4 streams with graphs, as docs/benchmarks.md has it: images/s of
    # the whole GPU, so the GPU is taken as one that computes a batch at a time.
    "resnet50_h200": ServiceCurve("resnet50_h200", ((1, 0.376e-3), (8, 1.074e-3))),
    # The same GPU as it is seen by one stream, with what more streams bring at 8 rows.
    "resnet50_h200_streams": ServiceCurve(
        "resnet50_h200_streams",
        ((1, 0.812e-3), (8, 1.471e-3)),
        speed_ups=((1, 1.0), (2, 1.20), (4, 1.37), (8, 1.37)),
    ),
    # Not measured: a model that takes nearly as long for one row as for 32, the most that batching
    # can have to do with.
    "fixed_cost": ServiceCurve("fixed_cost", ((1, 8e-3), (32, 10e-3))),
}


def read_curve(text: str) -> ServiceCurve:
    """Return a curve by its name, or from a JSON file: `{"name": …, "points": [[rows, s], …]}`.

    Raises:
        ValueError: There is neither.
    """
    if text in CURVES:
        return CURVES[text]
    if not Path(text).is_file():
        raise ValueError(f"{text!r} is no file and no curve: {', '.join(CURVES)}")
    fields = json.loads(Path(text).read_text("utf-8"))
    for key in ("points", "speed_ups"):
        fields[key] = tuple(sorted((int(at), float(value)) for at, value in fields.get(key, ())))
    fields["sizes"] = tuple(fields.get("sizes", ()))
    return ServiceCurve(**fields)


@cache
def _along(points: tuple[tuple[int, float], ...], at: int) -> float:
    xs, ys = zip(*points, strict=True)
    if at <= xs[-1] or len(xs) == 1:
        return float(np.interp(at, xs, ys))
    return float(ys[-1] + (ys[-1] - ys[-2]) / (xs[-1] - xs[-2]) * (at - xs[-1]))
