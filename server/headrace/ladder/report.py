"""The ladder's result as a table for people and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TextIO

from headrace.engines.base import Shape
from headrace.ladder.advice import Advice, Choice, advise
from headrace.ladder.figures import Figures, Result
from headrace.ladder.limits import FULL
from headrace.ladder.rungs import Rung
from headrace.table import print_table

SCHEMA: Final = "headrace-ladder/1"
UNKNOWN: Final = "-"
COLUMNS: Final = (
    *("rung", "rows/s", "factor", "p50 ms", "p99 ms", "enqueue us"),
    *("host", "copy", "compute", "hidden", "NVML", "limit"),
)


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that one climb found out."""

    model: str
    platform: str
    device: str  # such as "cudart 0 (NVIDIA H200)"
    shapes: Mapping[str, Shape]
    seconds_s: float  # of each rung
    results: Sequence[Result]

    @property
    def base(self) -> Figures | None:
        """The figures that factors are counted from: those of the lowest rung that has some."""
        return next((each.figures for each in self.results if each.figures is not None), None)

    def factor(self, result: Result) -> float | None:
        """How many times the lowest rung's throughput this one has."""
        if self.base is None or result.figures is None:
            return None
        return result.figures.rows_per_s / self.base.rows_per_s

    @property
    def advice(self) -> Advice | None:
        """What follows."""
        return advise(self.results)

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON has it; shares are 0 to 1, None stands for what is not measured."""
        advice = self.advice
        return {
            "schema": SCHEMA,
            "model": self.model,
            "platform": self.platform,
            "device": self.device,
            "inputs": {name: list(shape) for name, shape in self.shapes.items()},
            "seconds_per_rung": self.seconds_s,
            "full_share": FULL,
            "rungs": [self._rung_dict(each) for each in self.results],
            "recommendation": None
            if advice is None
            else {
                "throughput": _choice_dict(advice.throughput),
                "latency": _choice_dict(advice.latency),
            },
        }

    def _rung_dict(self, result: Result) -> dict[str, Any]:
        return {
            **_rung_settings(result.rung),
            "error": result.error or None,
            "figures": None
            if result.figures is None
            else {**_figures_dict(result.figures), "factor": self.factor(result)},
        }


def print_report(report: Report, stream: TextIO) -> None:
    """Print the table, what failed, and the recommendation."""
    shapes = ", ".join(
        f"{name}:{'x'.join(map(str, shape))}" for name, shape in report.shapes.items()
    )
    stream.write(f"{report.model} ({report.platform}) on {report.device}; {shapes}\n\n")
    print_table(COLUMNS, [_row(report, each) for each in report.results], stream)
    for result in report.results:
        if result.error:
            stream.write(f"\n{result.rung.name}: {result.error}\n")
    if (advice := report.advice) is not None:
        stream.write(f"\nfor throughput: {_choice(advice.throughput)}\n")
        stream.write(f"for latency: {_choice(advice.latency)}\n")


def _row(report: Report, result: Result) -> tuple[str, ...]:
    figures, factor = result.figures, report.factor(result)
    if figures is None or factor is None:
        return (result.rung.name, *(UNKNOWN for _ in COLUMNS[2:]), "failed")
    return (
        result.rung.name,
        f"{figures.rows_per_s:,.0f}",
        f"{factor:.2f}x",
        f"{figures.p50_s * 1e3:.3f}",
        f"{figures.p99_s * 1e3:.3f}",
        f"{figures.enqueue_s * 1e6:.0f}",
        f"{figures.shares.host:.0%}",
        f"{figures.shares.copy:.0%}",
        f"{figures.shares.compute:.0%}",
        _share(figures.hidden_share),
        _share(figures.nvml_share),
        figures.limit.text,
    )


def _choice(choice: Choice) -> str:
    return f"{choice.rung.name} ({choice.settings}): {choice.reason}"


def _share(share: float | None) -> str:
    return UNKNOWN if share is None else f"{share:.0%}"


def _figures_dict(figures: Figures) -> dict[str, Any]:
    limit = figures.limit
    return {
        "seconds": figures.seconds_s,
        "num_requests": figures.num_requests,
        "rows_per_s": figures.rows_per_s,
        "latency_p50_ms": figures.p50_s * 1e3,
        "latency_p99_ms": figures.p99_s * 1e3,
        "enqueue_us": figures.enqueue_s * 1e6,
        "host_share": figures.shares.host,
        "copy_share": figures.shares.copy,
        "compute_share": figures.shares.compute,
        "hidden_copy_share": figures.hidden_share,
        "nvml_share": figures.nvml_share,
        "limit": {
            "resource": limit.resource,
            "share": limit.share,
            "is_full": limit.is_full,
        },
    }


def _rung_settings(rung: Rung) -> dict[str, Any]:
    return {
        "name": rung.name,
        "slots": rung.num_slots,
        "lanes": rung.num_lanes,
        "rows": rung.rows,
        "is_synchronous": rung.is_synchronous,
        "has_graphs": rung.has_graphs,
        "window": rung.window,
    }


def _choice_dict(choice: Choice) -> dict[str, Any]:
    return {**_rung_settings(choice.rung), "reason": choice.reason}
