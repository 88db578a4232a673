"""Draws a sweep: the share in time and the 99th percentile over load, a line a policy, as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any, Final

import matplotlib as mpl
from matplotlib.figure import Figure

from load.simulate.lead import Results, loads_of, names_of, processes_of, shares
from load.simulate.policies import ALONE, TARGET
from load.simulate.sweep import Setting

ALONE_COLOR: Final = "#9aa3ad"
TARGET_COLOR: Final = "#c2571a"
LOG_ROOM: Final = 20  # the axis of latencies ends at so many targets


def write_chart(path: Path, setting: Setting, results: Results) -> None:
    """Write one column for each arrival process: the share in time above, latency below.

    Lines are means over the seeds; the band reaches from the least to the most of them.
    """
    mpl.rcParams["svg.hashsalt"] = "headrace"  # the same sweep gives the same file
    mpl.rcParams["svg.fonttype"] = "none"
    processes, names = processes_of(results), names_of(results)
    figure = Figure(figsize=(5.2 * len(processes), 7.2), layout="constrained")
    axes = figure.subplots(2, len(processes), sharex=True, sharey="row", squeeze=False)
    for column, process in enumerate(processes):
        above, below = axes[0][column], axes[1][column]
        for place, name in enumerate(names):
            _draw(above, below, results, process, name, _style(name, place, len(names)))
        _label(above, below, setting, process, is_first=column == 0)
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles=handles, labels=labels, loc="outside right center", frameon=False)
    figure.suptitle(_title(setting, processes), fontsize=11)
    figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})


def _draw(
    above: Any, below: Any, results: Results, process: str, name: str, style: dict[str, Any]
) -> None:
    loads = loads_of(results)
    found = [[100 * each for each in shares(results, name, process, load)] for load in loads]
    above.plot(loads, [mean(each) for each in found], label=name, **style)
    least, most = [min(each) for each in found], [max(each) for each in found]
    above.fill_between(loads, least, most, color=style["color"], alpha=0.15, linewidth=0)
    p99s_ms = [
        mean(
            figures.p99_s * 1e3
            for run, figures in results.items()
            if (run.policy.name, run.process, run.load) == (name, process, load)
        )
        for load in loads
    ]
    below.plot(loads, p99s_ms, **style)


def _label(above: Any, below: Any, setting: Setting, process: str, *, is_first: bool) -> None:
    target_ms = setting.target_s * 1e3
    above.set_title(process, fontsize=10)
    above.set_ylim(0, 104)
    below.set_yscale("log")
    below.set_ylim(top=target_ms * LOG_ROOM)
    below.axhline(target_ms, color="#3e4c59", linestyle=":", linewidth=1)
    below.set_xlabel("load (1 = all the device can do)")
    if is_first:
        above.set_ylabel(f"% of the requests answered within {target_ms:g} ms")
        below.set_ylabel("p99 of the answered, ms")
    for each in (above, below):
        each.grid(visible=True, color="#e4e7eb")
        each.spines[["top", "right"]].set_visible(False)


def _style(name: str, place: int, count: int) -> dict[str, Any]:
    if name == ALONE:
        return {"color": ALONE_COLOR, "linestyle": "--"}
    if name == TARGET:
        return {"color": TARGET_COLOR, "linewidth": 2.4, "zorder": 5}
    return {"color": mpl.colormaps["viridis"](place / max(count, 1)), "linewidth": 1.2}


def _title(setting: Setting, processes: Sequence[str]) -> str:
    waits = f"deadline {setting.target_s * 1e3:g} ms" if setting.has_deadlines else "no deadlines"
    slots = f"{setting.num_slots} slot" + ("s" if setting.num_slots > 1 else "")
    rate = f"{setting.capacity_per_s:,.0f} rows/s at load 1"
    return f"{setting.curve.name}, {slots}, {waits}, {' and '.join(processes)}: simulated, {rate}"
