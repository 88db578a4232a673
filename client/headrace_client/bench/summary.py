"""The figures of a level, out of its tally: what every report shows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import grpc
import numpy as np
from numpy.typing import NDArray

from headrace_client.bench.histogram import Histogram, middle_s, quantile_s
from headrace_client.bench.record import DROPPED, NUM_CODES, OK, UNFINISHED
from headrace_client.bench.tally import Tally

CODE_NAMES = {
    **{code.value[0]: code.name for code in grpc.StatusCode},
    DROPPED: "not sent",
    UNFINISHED: "unfinished",
}


@dataclass(frozen=True)
class Durations:
    """Of some requests, in milliseconds; None without any."""

    count: int
    mean_ms: float | None
    min_ms: float | None
    p50_ms: float | None
    p90_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    p999_ms: float | None
    max_ms: float | None


@dataclass(frozen=True)
class Failure:
    """Requests that ended with the same status and, but for numbers, the same text."""

    code: str
    text: str
    count: int


@dataclass(frozen=True)
class SourceFigures:
    """What one source, or several together, saw.

    Attributes:
        source: Its number, or what they are.
        num_due: Requests.
        num_lost: Of those, without a good answer.
        lost_share: The part of them, 0 to 1.
        p50_ms: Latency of the answers.
        p99_ms: The same.
    """

    source: str
    num_due: int
    num_lost: int
    lost_share: float
    p50_ms: float | None
    p99_ms: float | None


@dataclass(frozen=True)
class Sources:
    """The sources: all, and those that tell how fair the server was."""

    worst: SourceFigures
    flooding: SourceFigures | None
    others: SourceFigures
    each: Sequence[SourceFigures]


@dataclass(frozen=True)
class Series:
    """Figures step by step, by when requests ended; seconds from the measurement's start."""

    step_s: float
    time_s: Sequence[float]
    throughput_per_s: Sequence[float]
    goodput_per_s: Sequence[float]
    failures_per_s: dict[str, Sequence[float]]
    p50_ms: Sequence[float | None]
    p99_ms: Sequence[float | None]


@dataclass(frozen=True)
class Distribution:
    """Answers by latency: the middle of each class that has any, and how many it has."""

    latency_ms: Sequence[float]
    count: Sequence[int]


@dataclass(frozen=True)
class Figures:
    """What the client saw of one level.

    Attributes:
        measured_s: How long it was measured.
        num_due: Requests that were due in it.
        num_ok: Of those, answered.
        num_good: Of those, within the deadline.
        num_failed: Ended by an error, or not at all.
        throughput_per_s: Answers a second.
        goodput_per_s: Answers within the deadline a second.
        reply_bytes: Mean length of a reply; None without any.
        latency: From when a request was due to its answer.
        service: From when it was really sent.
        failing: From when it was sent to its error.
        lag: How late the client was.
        codes: How many requests ended with each status.
    """

    measured_s: float
    num_due: int
    num_ok: int
    num_good: int
    num_failed: int
    num_dropped: int
    num_unfinished: int
    throughput_per_s: float
    goodput_per_s: float
    reply_bytes: float | None
    latency: Durations
    service: Durations
    failing: Durations
    lag: Durations
    codes: dict[str, int]
    failures: Sequence[Failure]
    sources: Sources | None
    series: Series
    distribution: Distribution


def figures(tally: Tally, ended_s: float, flooding: int | None = None) -> Figures:
    """Sum up a level.

    Args:
        tally: Of all its requests.
        ended_s: When the measurement ended, if before its time; on the clock of the tally.
        flooding: The source that sent more than the others.
    """
    end_s = min(tally.end_s, ended_s) if math.isfinite(tally.end_s) else tally.last_s
    measured_s = max(end_s - tally.start_s, 1e-9)
    codes = tally.codes
    present = np.flatnonzero(tally.latency.counts)
    return Figures(
        measured_s=measured_s,
        num_due=int(codes.sum()),
        num_ok=int(codes[OK]),
        num_good=tally.num_good,
        num_failed=int(codes.sum() - codes[OK]),
        num_dropped=int(codes[DROPPED]),
        num_unfinished=int(codes[UNFINISHED]),
        throughput_per_s=tally.num_ended_ok / measured_s,
        goodput_per_s=tally.num_ended_good / measured_s,
        reply_bytes=tally.reply_bytes / tally.num_replies if tally.num_replies else None,
        latency=durations(tally.latency),
        service=durations(tally.service),
        failing=durations(tally.failure),
        lag=durations(tally.lag),
        codes={CODE_NAMES[code]: int(codes[code]) for code in range(NUM_CODES) if codes[code]},
        failures=[
            Failure(CODE_NAMES[code], text, count)
            for (code, text), count in tally.texts.most_common()
        ],
        sources=_sources(tally, flooding) if len(tally.source_due) > 1 else None,
        series=_series(tally, measured_s),
        distribution=Distribution(
            (middle_s(present) * 1e3).tolist(), tally.latency.counts[present].tolist()
        ),
    )


def durations(histogram: Histogram) -> Durations:
    """Return the quantiles of a histogram."""
    count = histogram.count
    if not count:
        return Durations(0, *[None] * 8)
    quantiles_s = histogram.quantiles_s((0.5, 0.9, 0.95, 0.99, 0.999))
    values_s = (histogram.mean_s, histogram.min_s, *quantiles_s, histogram.max_s)
    return Durations(count, *(value * 1e3 for value in values_s))


def _sources(tally: Tally, flooding: int | None) -> Sources:
    number = len(tally.source_due)
    each = [_of_sources(tally, [source], str(source)) for source in range(number)]
    others = [source for source in range(number) if source != flooding]
    worst = max(
        (each[source] for source in others),
        key=lambda one: (one.lost_share, one.p99_ms or 0.0),
    )
    return Sources(
        worst=worst,
        flooding=None if flooding is None else each[flooding],
        others=_of_sources(tally, others, "all others" if flooding is not None else "all"),
        each=each,
    )


def _of_sources(tally: Tally, sources: list[int], name: str) -> SourceFigures:
    num_due = int(tally.source_due[sources].sum())
    num_lost = num_due - int(tally.source_good[sources].sum())
    counts = tally.source_latency[sources].sum(axis=0, dtype=np.int64)
    return SourceFigures(
        source=name,
        num_due=num_due,
        num_lost=num_lost,
        lost_share=num_lost / num_due if num_due else 0.0,
        p50_ms=_quantile_ms(counts, 0.5),
        p99_ms=_quantile_ms(counts, 0.99),
    )


def _quantile_ms(counts: NDArray[np.int64], quantile: float) -> float | None:
    value_s = quantile_s(counts, quantile)
    return None if math.isnan(value_s) else value_s * 1e3


def _series(tally: Tally, measured_s: float) -> Series:
    steps = tally.steps
    step_s = steps.step_s
    # The last step may be cut short by the end; a part of one tells nothing.
    number = max(1, int(measured_s / step_s + 1e-6))
    steps.extend(number)
    codes = steps.codes[:number]
    latencies = steps.latencies[:number].astype(np.int64)
    return Series(
        step_s=step_s,
        time_s=[round(step * step_s, 6) for step in range(number)],
        throughput_per_s=(codes[:, OK] / step_s).tolist(),
        goodput_per_s=(steps.good[:number] / step_s).tolist(),
        failures_per_s={
            CODE_NAMES[code]: (codes[:, code] / step_s).tolist()
            for code in range(NUM_CODES)
            if code != OK and codes[:, code].any()
        },
        p50_ms=[_quantile_ms(counts, 0.5) for counts in latencies],
        p99_ms=[_quantile_ms(counts, 0.99) for counts in latencies],
    )
