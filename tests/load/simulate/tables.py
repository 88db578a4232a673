"""Writes the figures of a sweep as tables in Markdown."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping

from load.simulate.figures import Figures
from load.simulate.sweep import Run, Setting


def sweep_table(setting: Setting, results: Mapping[Run, Figures], process: str) -> str:
    """Return one row for each load: the share in time, and the 99th percentile, of each policy."""
    runs = {run: figures for run, figures in results.items() if run.process == process}
    names = list(dict.fromkeys(run.policy.name for run in runs))
    lines = [
        f"{setting.curve.name}, {process}: % in time / p99 ms",
        "",
        "| load | rows/s | " + " | ".join(names) + " |",
        "| --: | --: |" + " --: |" * len(names),
    ]
    for load in dict.fromkeys(run.load for run in runs):
        of = {run.policy.name: figures for run, figures in runs.items() if run.load == load}
        best = max(figures.good_share for figures in of.values())
        cells = [_cell(of[name], best) for name in names]
        lines.append(f"| {load:g} | {of[names[0]].offered_per_s:,.0f} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def drop_table(results: Mapping[Run, Figures]) -> str:
    """Return one row for each policy: what it dropped and how it batched, over all its runs."""
    lines = ["| policy | rows a batch | dropped |", "| --- | --: | --- |"]
    lines += _drop_rows(results)
    return "\n".join(lines) + "\n"


def _drop_rows(results: Mapping[Run, Figures]) -> Iterator[str]:
    for name in dict.fromkeys(run.policy.name for run in results):
        batches: Counter[int] = Counter()
        drops: Counter[str] = Counter()
        for run, figures in results.items():
            if run.policy.name == name:
                batches.update(figures.batch_rows)
                drops.update(figures.drops)
        mean = sum(rows * count for rows, count in batches.items()) / max(batches.total(), 1)
        dropped = ", ".join(f"{count:,} {reason}" for reason, count in drops.most_common())
        yield f"| {name} | {mean:.1f} | {dropped or 'none'} |"


def _cell(figures: Figures, best: float) -> str:
    share = f"{100 * figures.good_share:.1f}"
    if figures.good_share >= best - 5e-4:
        share = f"**{share}**"
    return f"{share} / " + ("–" if math.isnan(figures.p99_s) else f"{figures.p99_s * 1e3:.1f}")
