"""Medians over the rounds, spreads, and the ratios to the floors, as a table and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from load.work import Figures, Work

# Whose figures a server's are set against: first the floor, then what it costs to have metrics.
FLOOR = {
    ("headrace grpcio", False): "grpcio echo",
    ("headrace native", False): "native echo",
    ("headrace grpcio", True): "grpcio ort",
    ("headrace native", True): "native ort",
}
HEAD = "server | req/s | spread | p50 ms | p99 ms | CPU s/1000 | rate / floor | CPU / floor"


@dataclass(frozen=True)
class Row:
    """One server at one piece of work, over all rounds.

    Args:
        spread: (largest - smallest) / median of the rate.
        floor: whose figures the ratios are to; "" when this is a floor itself.
    """

    work: str
    server: str
    rate: float
    spread: float
    p50_ms: float
    p99_ms: float
    cpu_s_per_1000: float
    floor: str
    rate_to_floor: float | None
    cpu_to_floor: float | None


Runs = Mapping[tuple[Work, str], Sequence[Figures]]


def rows(runs: Runs) -> list[Row]:
    """One row for each server and piece of work, in the order that they were measured."""
    made = []
    for (work, server), figures in runs.items():
        rates = [one.rate for one in figures]
        floor = floor_of(work, server)
        against = runs.get((work, floor), ())
        made.append(
            Row(
                work=work.name,
                server=server,
                rate=median(rates),
                spread=(max(rates) - min(rates)) / median(rates),
                p50_ms=median(one.p50_ms for one in figures),
                p99_ms=median(one.p99_ms for one in figures),
                cpu_s_per_1000=median(one.cpu_s_per_1000 for one in figures),
                floor=floor if against else "",
                rate_to_floor=_ratio([one.rate for one in figures], [one.rate for one in against]),
                cpu_to_floor=_ratio(
                    [one.cpu_s_per_1000 for one in figures],
                    [one.cpu_s_per_1000 for one in against],
                ),
            )
        )
    return made


def floor_of(work: Work, server: str) -> str:
    """The server that another is set against, "" for none."""
    if server.endswith("no metrics"):
        return server.removesuffix(", no metrics")
    return FLOOR.get((server, "grpcio ort" in work.floors), "")


def _ratio(ours: Sequence[float], theirs: Sequence[float]) -> float | None:
    """Median of the ratios round by round: neighbours in time had the same neighbours."""
    if not theirs:
        return None
    return median(our / their for our, their in zip(ours, theirs, strict=True))


def table(made: Sequence[Row]) -> str:
    """Markdown, one table for each piece of work."""
    lines: list[str] = []
    for work in dict.fromkeys(row.work for row in made):
        lines += ["", f"### {work}", "", f"| {HEAD} |", f"|{' --- |' + ' ---: |' * 7}"]
        lines += [_line(row) for row in made if row.work == work]
    return "\n".join(lines[1:])


def _line(row: Row) -> str:
    def ratio(value: float | None) -> str:
        return "" if value is None else f"{value:.2f}"

    cells = (
        row.server,
        f"{row.rate:,.0f}",
        f"{row.spread:.0%}",
        f"{row.p50_ms:.3g}",
        f"{row.p99_ms:.3g}",
        f"{row.cpu_s_per_1000:.3g}",
        ratio(row.rate_to_floor) + (f" ({row.floor})" if row.floor else ""),
        ratio(row.cpu_to_floor),
    )
    return f"| {' | '.join(cells)} |"
