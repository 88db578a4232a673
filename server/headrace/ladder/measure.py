"""Measures one rung: opens its slots, warms every lane, feeds them, and sums up what was seen."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from math import isnan

import numpy as np

from headrace.device.base import Device
from headrace.errors import EngineError, HeadraceError
from headrace.ladder.figures import Figures, Result
from headrace.ladder.limits import Shares
from headrace.ladder.loops import Loop, OneByOne, Samples, Window, Work
from headrace.ladder.rungs import Rung
from headrace.ladder.subject import Subject, TimedSlot
from headrace.metrics.gpu import GpuProbe
from headrace.slots.anchor import Anchor
from headrace.slots.blocks import BlockPool, size_class
from headrace.slots.warmup import capture_graphs
from headrace.timeline.overlap import Interval, Span, overlap, total_s

WARM_RUNS = 2  # of each lane alone: the first prepares its binding
WARM_SHARE = 0.1  # of the measuring time, before it, under full load
NVML_NAME = "nv_gpu_utilization"

Clock = Callable[[], float]


def measure(subject: Subject, rung: Rung, *, seconds_s: float, clock: Clock) -> Result:
    """Measure a rung; one that cannot be run has the reason in its result."""
    try:
        payload = subject.payload(rung.rows)
        with ExitStack() as stack:
            budget_bytes = (rung.window + 1) * size_class(payload.layout.size_bytes)
            blocks = BlockPool(subject.device, budget_bytes)
            stack.callback(blocks.close)
            blocks.reserve(payload.layout.size_bytes, rung.window)
            slots = subject.open_slots(rung, clock)
            for slot in slots:
                stack.callback(slot.close)
            anchor = Anchor(subject.device, clock)
            stack.callback(anchor.close)
            for slot in slots:
                slot.anchor = anchor
            alone = OneByOne(slots, payload, blocks, clock)
            _warm_up(rung, slots, alone, blocks)
            loop: Loop = alone
            if not rung.is_synchronous:
                loop = Window(slots, payload, blocks, clock, rung=rung, device=subject.device)
            loop.run(seconds_s * WARM_SHARE)
            return Result(rung, _figures(subject.device, rung, slots, loop, seconds_s))
    except HeadraceError as error:
        subject.device.check()  # after a dead device there is nothing left to measure
        return Result(rung, None, str(error))


def _warm_up(rung: Rung, slots: Sequence[TimedSlot], alone: OneByOne, blocks: BlockPool) -> None:
    """Run each lane with nothing else in flight, so that bindings and graphs are there."""
    for slot in slots:
        for lane in slot.lanes:
            for _ in range(WARM_RUNS):
                alone.once(slot, lane, Samples())
        if rung.has_graphs:
            num_captured = capture_graphs(slot, [alone.payload.layout], blocks)
            if num_captured < rung.num_lanes:
                raise EngineError("its work cannot be captured in a graph; the log says why")


def _figures(
    device: Device, rung: Rung, slots: Sequence[TimedSlot], loop: Loop, seconds_s: float
) -> Figures:
    for slot in slots:
        slot.enqueue_s, slot.num_enqueued = 0.0, 0
    samples = loop.run(seconds_s)
    nvml_share = nvml_utilization(device)  # of up to the last second: read while it is that
    passed_s = samples.until - samples.since
    num_requests = len(samples.latencies_s)
    if not num_requests:
        raise EngineError(f"no request ended within {seconds_s:g} s; raise --seconds")
    p50_s, p99_s = np.percentile(samples.latencies_s, (50, 99))
    num_enqueued = sum(slot.num_enqueued for slot in slots)
    return Figures(
        seconds_s=passed_s,
        num_requests=num_requests,
        rows_per_s=num_requests * rung.rows / passed_s,
        p50_s=float(p50_s),
        p99_s=float(p99_s),
        enqueue_s=sum(slot.enqueue_s for slot in slots) / num_enqueued,
        shares=_shares(device, samples, rung.num_slots),
        hidden_share=overlap(spans_of(samples.work)).hidden_share,
        nvml_share=nvml_share,
    )


def _shares(device: Device, samples: Samples, num_slots: int) -> Shares:
    passed_s = samples.until - samples.since
    spans = spans_of(samples.work)

    def busy_s(name: str) -> float:
        return total_s(_clipped(spans, name, samples.since, samples.until))

    if device.is_unified:
        num_cores = min(num_slots, len(os.sched_getaffinity(0)))
        compute_s = sum(
            end - start for start, end in _clipped(spans, "execute", samples.since, samples.until)
        )
        compute = compute_s / num_cores / passed_s
    else:
        compute = busy_s("execute") / passed_s
    copy = max(busy_s("h2d"), busy_s("d2h")) / passed_s
    return Shares(*(min(1.0, share) for share in (samples.host_s / passed_s, copy, compute)))


def spans_of(work: Sequence[Work]) -> list[Span]:
    """Lay out what the device did for each request; what has no time is left out."""
    spans = []
    for slot, begun_at, *durations_s in work:
        at = begun_at
        for name, duration_s in zip(("h2d", "execute", "d2h"), durations_s, strict=True):
            if isnan(duration_s):
                continue
            spans.append(Span(str(slot), name, at, at + duration_s))
            at += duration_s
    return spans


def _clipped(spans: Sequence[Span], name: str, since: float, until: float) -> list[Interval]:
    return [
        (max(span.start_s, since), min(span.end_s, until))
        for span in spans
        if span.name == name and span.end_s > since and span.start_s < until
    ]


def nvml_utilization(device: Device) -> float | None:
    """Return the GPU's utilization as NVML tells it, 0 to 1; None where nothing tells."""
    if device.kind != "cudart":
        return None
    probe = GpuProbe()
    try:
        for figure in probe.read():
            uuid: str = getattr(device, "uuid", "")
            if figure.name == NVML_NAME and figure.labels["gpu_uuid"] == uuid:
                return figure.value
    finally:
        probe.close()
    return None
