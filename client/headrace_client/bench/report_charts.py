"""The charts of a report: which figures go on which axes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from headrace_client.bench.charts import Axis, Points, bar_chart, line_chart
from headrace_client.bench.conduct import Outcome
from headrace_client.bench.summary import Distribution, Series

_NUM_BARS = 60
# As HdrHistogram's plots: each step is a tenth of what is left.
_PERCENTILES = {10.0**nines: f"{100 - 100 / 10**nines:.8g}%" for nines in range(8)} | {2.0: "50%"}


def distribution_chart(distribution: Distribution) -> str:
    """How many answers took how long."""
    latency_ms = np.array(distribution.latency_ms)
    low, high = latency_ms.min() * 0.98, latency_ms.max() * 1.02
    edges = np.geomspace(low, high, _NUM_BARS + 1)
    counts, _ = np.histogram(latency_ms, edges, weights=np.array(distribution.count))
    x = Axis(float(low), float(high), "latency, ms", is_log=True)
    y = Axis(0, float(counts.max()), "answers")
    return bar_chart({"answers": counts.tolist()}, edges.tolist(), x, y)


def percentile_chart(distribution: Distribution) -> str:
    """What latency how many answers did not exceed, with the rare ones drawn large."""
    count = np.array(distribution.count)
    # The part that took longer; the slowest class stands at half of its own.
    left = 1 - (np.cumsum(count) - count / 2) / count.sum()
    points = list(zip((1 / left).tolist(), distribution.latency_ms, strict=True))
    x = Axis(
        1.0,
        max(10.0, float(1 / left[-1])),
        "answers, by latency",
        is_log=True,
        ticks=sorted(_PERCENTILES),
        label=lambda value: _PERCENTILES[value],
    )
    y = Axis(0, max(distribution.latency_ms) * 1.05, "latency, ms")
    return line_chart({"latency": points}, x, y)


def throughput_chart(series: Series, *, with_goodput: bool) -> str:
    """Answers a second, and those within the deadline."""
    lines = {"throughput": _points(series, series.throughput_per_s)}
    if with_goodput:
        lines["goodput"] = _points(series, series.goodput_per_s)
    return line_chart(lines, _time(series), _up_to(lines, "answers a second"))


def latency_chart(series: Series) -> str:
    """Latency over time; nothing where no answer came."""
    lines = {"p50": _points(series, series.p50_ms), "p99": _points(series, series.p99_ms)}
    return line_chart(lines, _time(series), _up_to(lines, "latency, ms"))


def failure_chart(series: Series) -> str:
    """Failures a second, by status, over time."""
    lefts = [*series.time_s, series.time_s[-1] + series.step_s]
    highest = max(map(sum, zip(*series.failures_per_s.values(), strict=True)))
    x = Axis(0, lefts[-1], "seconds")
    return bar_chart(series.failures_per_s, lefts, x, Axis(0, highest * 1.05, "failures a second"))


def sweep_charts(levels: Sequence[Outcome]) -> tuple[str, str]:
    """Throughput and goodput, and latencies, over the load."""
    loads = [level.value for level in levels]
    word = "requests in flight" if levels[0].kind == "closed" else "requests a second asked for"
    x = Axis(min(loads), max(loads), word, ticks=loads if len(loads) <= 8 else None)
    rates: dict[str, Points] = {
        "throughput": [(level.value, level.seen.throughput_per_s) for level in levels],
        "goodput": [(level.value, level.seen.goodput_per_s) for level in levels],
    }
    latencies: dict[str, Points] = {
        "p50": [(level.value, level.seen.latency.p50_ms) for level in levels],
        "p90": [(level.value, level.seen.latency.p90_ms) for level in levels],
        "p99": [(level.value, level.seen.latency.p99_ms) for level in levels],
    }
    return (
        line_chart(rates, x, _up_to(rates, "answers a second")),
        line_chart(latencies, x, _up_to(latencies, "latency, ms")),
    )


def _points(series: Series, values: Sequence[float | None]) -> Points:
    middle_s = series.step_s / 2
    return [(time_s + middle_s, value) for time_s, value in zip(series.time_s, values, strict=True)]


def _time(series: Series) -> Axis:
    return Axis(0, series.time_s[-1] + series.step_s, "seconds")


def _up_to(lines: Mapping[str, Points], text: str) -> Axis:
    values = [value for points in lines.values() for _, value in points if value is not None]
    highest = max(values, default=0.0)
    return Axis(0, highest * 1.05 if highest > 0 and math.isfinite(highest) else 1.0, text)
