"""What must hold in practice: goodput through overload, and cameras beside one that floods."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from headrace.engines.batching_spec import BatchingSpec
from headrace.scheduling.dynamic import DynamicBatcher
from load.simulate.arrivals import arrivals, cameras
from load.simulate.core import FREE_HOST, Ending, HostCost, VirtualCore
from load.simulate.curves import ServiceCurve
from load.simulate.figures import Figures, figures_of
from load.simulate.slots import Bound, noisy

FLOODING: Final = "camera 0"
MAX_QUEUE_SIZE: Final = 1024


def overload(
    curve: ServiceCurve,
    spec: BatchingSpec,
    load: float,
    *,
    num_slots: int = 1,
    deadline_s: float = 0.2,
    duration_s: float = 5.0,
    host: HostCost = FREE_HOST,
    seed: int = 1,
) -> Figures:
    """Let Poisson requests with deadlines come, `load` times as many as the device can do."""
    core = _core(curve, spec, num_slots=num_slots, host=host, seed=seed)
    rate = load * curve.rows_per_s(num_slots)
    coming = arrivals("poisson", rate, duration_s, seed, deadline_s=deadline_s)
    figures = figures_of(core.play(coming), core, duration_s=duration_s, target_s=deadline_s)
    core.close()
    return figures


@dataclass(frozen=True, slots=True)
class CameraFigures:
    """What became of the frames of the cameras that do not flood.

    Attributes:
        num_frames: Of all of them.
        num_lost: Not answered, for whatever reason.
        p99_s: Of each camera by itself, the worst of them.
        wait_p99_s: The same of the time until it began to run.
    """

    num_frames: int
    num_lost: int
    p99_s: float
    wait_p99_s: float


def watch_cameras(
    curve: ServiceCurve,
    spec: BatchingSpec,
    *,
    num_cameras: int = 64,
    rate: float = 25.0,
    flood: float = 1.0,
    duration_s: float = 4.0,
    max_queue_size: int = MAX_QUEUE_SIZE,
    seed: int = 1,
) -> CameraFigures:
    """Let cameras send frames at a steady rate, and one of them `flood` times as many."""
    rates = [rate * flood] + [rate] * (num_cameras - 1)
    core = _core(curve, spec, num_slots=1, seed=seed, max_queue_size=max_queue_size)
    endings = core.play(cameras(rates, duration_s, seed))
    waits = _waits(core.log)
    core.close()
    return _camera_figures([e for e in endings if e.arrival.source != FLOODING], waits)


def _camera_figures(
    endings: Sequence[Ending], waits: Sequence[tuple[str | None, float]]
) -> CameraFigures:
    answered = [(e.arrival.source, e.latency_s) for e in endings if not e.error]
    return CameraFigures(
        num_frames=len(endings),
        num_lost=len(endings) - len(answered),
        p99_s=_worst_p99_s(answered),
        wait_p99_s=_worst_p99_s([wait for wait in waits if wait[0] != FLOODING]),
    )


def _waits(log: Sequence[Bound]) -> list[tuple[str | None, float]]:
    """Return (source, seconds until it began to run) of what ran on a device of one slot."""
    waits: list[tuple[str | None, float]] = []
    free_s = -math.inf  # when the batch before was done
    for bound in log:
        endings = [request.tag[0] for request in bound.batch.requests]
        begun_s, free_s = max(bound.at_s, free_s), endings[0].ended_s
        waits += [(each.arrival.source, begun_s - each.arrival.at_s) for each in endings]
    return waits


def _worst_p99_s(samples: Iterable[tuple[str | None, float]]) -> float:
    """Return the 99th percentile of each source by itself, the worst of them."""
    by_source: dict[str | None, list[float]] = {}
    for source, sample_s in samples:
        by_source.setdefault(source, []).append(sample_s)
    return max(float(np.percentile(each, 99)) for each in by_source.values())


def _core(
    curve: ServiceCurve,
    spec: BatchingSpec,
    *,
    num_slots: int,
    seed: int,
    host: HostCost = FREE_HOST,
    max_queue_size: int = MAX_QUEUE_SIZE,
) -> VirtualCore:
    return VirtualCore(
        curve,
        lambda pool, capacity: DynamicBatcher(
            *(spec, capacity, pool.starts_at, max_queue_size),
            num_busy=pool.num_busy,
            num_idle=pool.num_idle,
            ends_at=pool.ends_at,
        ),
        draw=noisy(curve, seed),
        num_slots=num_slots,
        host=host,
        max_queue_size=max_queue_size,
    )
