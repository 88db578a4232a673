"""What the ladder recommends, and why: pure.

Two answers, since not everybody wants the same: the smallest way to run that is within 5 % of the
best throughput, and the one with the least p99. "Smallest" counts rows a request first (a batch has
to be filled by clients), then streams and lanes (memory), then graphs (captures).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from headrace.ladder.figures import Figures, Result
from headrace.ladder.rungs import Rung

NEAR_BEST: Final = 0.95


@dataclass(frozen=True, slots=True)
class Choice:
    """A rung to run with, and the reason."""

    rung: Rung
    figures: Figures
    reason: str

    @property
    def settings(self) -> str:
        """The rung as what to set."""
        graphs = "on" if self.rung.has_graphs else "off"
        return f"slots {self.rung.num_slots}, graphs {graphs}, batch {self.rung.rows}"


@dataclass(frozen=True, slots=True)
class Advice:
    """The two recommendations."""

    throughput: Choice
    latency: Choice


def advise(results: Sequence[Result]) -> Advice | None:
    """Choose among the rungs that could be measured; None when there are none."""
    known = [(each.rung, each.figures) for each in results if each.figures is not None]
    if not known:
        return None
    top, top_figures = max(known, key=lambda each: each[1].rows_per_s)
    near = [each for each in known if each[1].rows_per_s >= NEAR_BEST * top_figures.rows_per_s]
    small, small_figures = min(near, key=lambda each: (*_size(each[0]), -each[1].rows_per_s))
    quick, quick_figures = min(known, key=lambda each: (each[1].p99_s, -each[1].rows_per_s))
    return Advice(
        Choice(small, small_figures, _why_throughput(small, small_figures, top, top_figures)),
        Choice(
            quick,
            quick_figures,
            f"the least p99 of all rungs, {quick_figures.p99_s * 1e3:.3g} ms, at "
            f"{quick_figures.rows_per_s / top_figures.rows_per_s:.0%} of the best throughput",
        ),
    )


def _size(rung: Rung) -> tuple[int, int, int, bool, bool]:
    return (
        rung.rows,
        rung.num_slots,
        rung.num_lanes,
        rung.has_graphs,
        not rung.is_synchronous,
    )


def _why_throughput(rung: Rung, figures: Figures, top: Rung, top_figures: Figures) -> str:
    if rung == top:
        reason = f"the best throughput, {figures.rows_per_s:,.0f} rows/s"
        reason += "; nothing smaller is within 5 % of it"
    else:
        share = figures.rows_per_s / top_figures.rows_per_s
        reason = (
            f"{figures.rows_per_s:,.0f} rows/s is {share:.0%} of the best ({top.name}), and "
            "nothing smaller is within 5 % of that"
        )
    return f"{reason}; limited by {figures.limit.text}"
