"""Draws a sweep: goodput and the 99th percentile over load, a line for each policy, as SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
from matplotlib.figure import Figure

from load.simulate.figures import Figures
from load.simulate.sweep import Run, Setting

ALONE_COLOR: Final = "#9aa3ad"
TARGET_COLOR: Final = "#c2571a"
LOG_ROOM: Final = 20  # the axis of latencies ends at so many targets


def write_chart(
    path: Path, setting: Setting, results: Mapping[Run, Figures], processes: Sequence[str]
) -> None:
    """Write one column for each arrival process: goodput above, latency below."""
    mpl.rcParams["svg.hashsalt"] = "headrace"  # the same sweep gives the same file
    mpl.rcParams["svg.fonttype"] = "none"
    figure = Figure(figsize=(5.2 * len(processes), 7.2), layout="constrained")
    axes = figure.subplots(2, len(processes), sharex=True, sharey="row", squeeze=False)
    policies = list(dict.fromkeys(run.policy.name for run in results))
    for column, process in enumerate(processes):
        above, below = axes[0][column], axes[1][column]
        for place, name in enumerate(policies):
            runs = {
                r: f for r, f in results.items() if (r.policy.name, r.process) == (name, process)
            }
            loads = [one.load for one in runs]
            style = _style(name, place, len(policies))
            above.plot(loads, [f.good_per_s for f in runs.values()], label=name, **style)
            below.plot(loads, [f.p99_s * 1e3 for f in runs.values()], **style)
        _label(above, below, setting, process, is_first=column == 0)
    axes[0][0].legend(frameon=False, fontsize=8)
    figure.suptitle(_title(setting), fontsize=11)
    figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})


def _label(above: Any, below: Any, setting: Setting, process: str, *, is_first: bool) -> None:
    target_ms = setting.target_s * 1e3
    above.set_title(process, fontsize=10)
    above.set_ylim(bottom=0)
    below.set_yscale("log")
    below.set_ylim(top=target_ms * LOG_ROOM)
    below.axhline(target_ms, color="#3e4c59", linestyle=":", linewidth=1)
    below.set_xlabel("load (1 = all the device can do)")
    if is_first:
        above.set_ylabel(f"rows/s answered within {target_ms:g} ms")
        below.set_ylabel("p99 of the answered, ms")
    for each in (above, below):
        each.grid(visible=True, color="#e4e7eb")
        each.spines[["top", "right"]].set_visible(False)


def _style(name: str, place: int, count: int) -> dict[str, Any]:
    if name == "alone":
        return {"color": ALONE_COLOR, "linestyle": "--"}
    if name == "target":
        return {"color": TARGET_COLOR, "linewidth": 2.4, "zorder": 5}
    return {"color": mpl.colormaps["viridis"](place / max(count, 1)), "linewidth": 1.2}


def _title(setting: Setting) -> str:
    waits = f"deadline {setting.target_s * 1e3:g} ms" if setting.has_deadlines else "no deadlines"
    slots = f"{setting.num_slots} slot" + ("s" if setting.num_slots > 1 else "")
    return (
        f"{setting.curve.name}, {slots}, {waits}: simulated, {setting.capacity_per_s:,.0f} rows/s"
    )
