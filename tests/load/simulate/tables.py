"""Writes the figures of sweeps as tables in Markdown."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from statistics import mean

from load.simulate.figures import Figures
from load.simulate.lead import Results, hardest, loads_of, mean_lead, names_of, processes_of, shares
from load.simulate.policies import TARGET
from load.simulate.sweep import Run, Setting

BEST = 5e-4  # so near to the best share of a row a cell is bold


def sweep_table(setting: Setting, results: Results, process: str) -> str:
    """Return one row for each load: the share in time of each policy, and how seeds differ."""
    names = names_of(results)
    lines = [
        f"{setting.curve.name}, {process}: % in time",
        "",
        "| load | rows/s | " + " | ".join(names) + " |",
        "| --: | --: |" + " --: |" * len(names),
    ]
    for load in loads_of(results):
        of = {name: shares(results, name, process, load) for name in names}
        best = max(mean(each) for each in of.values())
        cells = " | ".join(_cell(each, best) for each in of.values())
        lines.append(f"| {load:g} | {load * setting.capacity_per_s:,.0f} | {cells} |")
    return "\n".join(lines) + "\n"


def lead_rows(title: str, results: Results) -> Iterator[str]:
    """Give one row for each process: how far the target is ahead of each policy, and where not."""
    others = [name for name in names_of(results) if name != TARGET]
    cells = list(hardest(results))
    for process in processes_of(results):
        leads = " | ".join(f"{100 * mean_lead(results, name, process):+.1f}" for name in others)
        mine = [cell.against for cell in cells if cell.process == process]
        num_ahead = sum(against.is_ahead for against in mine)
        num_behind = sum(against.is_behind for against in mine)
        counts = f"{num_ahead} | {len(mine) - num_ahead - num_behind} | {num_behind}"
        yield f"| {title} | {process} | {leads} | {counts} |"


def lead_heads(results: Results) -> list[str]:
    """Return the head of the table that has `lead_rows`."""
    others = [name for name in names_of(results) if name != TARGET]
    return [
        f"| scenario | arrivals | {' | '.join(others)} | ahead | level | behind |",
        "| --- | --- |" + " --: |" * (len(others) + 3),
    ]


def behind_rows(title: str, results: Results) -> Iterator[str]:
    """Give one row for each load at which a fixed delay is better."""
    for process, load, against in hardest(results):
        if against.is_behind:
            (ours,) = {mean(shares(results, TARGET, process, load))}
            yield (
                f"| {title} | {process} | {load:g} | {100 * ours:.1f} | "
                f"{100 * (ours - against.mean):.1f} | {against.over} | "
                f"{100 * against.mean:+.1f} ({100 * against.low:+.1f} to "
                f"{100 * against.high:+.1f}) |"
            )


def drop_table(results: Mapping[Run, Figures]) -> str:
    """Return one row for each policy: what it dropped and how it batched, over all its runs."""
    lines = ["| policy | rows a batch | dropped |", "| --- | --: | --- |"]
    lines += _drop_rows(results)
    return "\n".join(lines) + "\n"


def _drop_rows(results: Mapping[Run, Figures]) -> Iterator[str]:
    for name in names_of(results):
        batches: Counter[int] = Counter()
        drops: Counter[str] = Counter()
        for run, figures in results.items():
            if run.policy.name == name:
                batches.update(figures.batch_rows)
                drops.update(figures.drops)
        rows = sum(rows * count for rows, count in batches.items()) / max(batches.total(), 1)
        dropped = ", ".join(f"{count:,} {reason}" for reason, count in drops.most_common())
        yield f"| {name} | {rows:.1f} | {dropped or 'none'} |"


def _cell(found: list[float], best: float) -> str:
    """Return the mean, and half of what lies between the least and the most seed."""
    middle, half = mean(found), (max(found) - min(found)) / 2
    share = f"{100 * middle:.1f}"
    if middle >= best - BEST:
        share = f"**{share}**"
    return share if half < BEST or math.isnan(half) else f"{share} ± {100 * half:.1f}"
