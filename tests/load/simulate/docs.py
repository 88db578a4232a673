"""Writes the charts, figures and tables of docs/scheduling-simulation.md anew: `make simulate`."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from headrace.engines.batching_spec import BatchingSpec
from helpers.tree import REPOSITORY
from load.simulate.chart import write_chart
from load.simulate.curves import CURVES, ServiceCurve
from load.simulate.kept import read_results, write_results
from load.simulate.lead import Results, processes_of
from load.simulate.overloads import overload_table, refusal_table
from load.simulate.policies import policies
from load.simulate.scenarios import CameraFigures, watch_cameras
from load.simulate.sweep import LOADS, Setting, sweep
from load.simulate.tables import behind_rows, lead_heads, lead_rows, sweep_table
from load.simulate.workers import spread

PAGE: Final = REPOSITORY / "docs" / "scheduling-simulation.md"
CHARTS: Final = REPOSITORY / "docs" / "charts"
PROCESSES: Final = ("poisson", "on/off")

_H200, _FIXED = CURVES["resnet50_h200"], CURVES["fixed_cost"]
SWEEPS: Final[Mapping[str, Setting]] = {
    "h200": Setting(_H200, 1, 0.010, has_deadlines=False, duration_s=0.2),
    "h200-deadlines": Setting(_H200, 1, 0.010, has_deadlines=True, duration_s=0.2),
    "streams": Setting(
        CURVES["resnet50_h200_streams"], 4, 0.010, has_deadlines=True, duration_s=0.2
    ),
    "fixed-cost": Setting(_FIXED, 1, 0.030, has_deadlines=True, duration_s=0.6),
    "fixed-cost-tight": Setting(_FIXED, 1, 0.014, has_deadlines=True, duration_s=0.6),
    "cpu": Setting(CURVES["resnet50_cpu"], 2, 0.500, has_deadlines=True, duration_s=20.0),
}
FLOODS: Final = (1, 10, 40)
CAMERA: Final = ServiceCurve("camera", ((1, 1.0e-3), (8, 4.5e-3)), max_rows=8)
"""64 cameras of 25 frames a second load it with 0.9 of what it can do."""
CAMERA_SPECS: Final[Mapping[str, BatchingSpec]] = {
    "no delay": BatchingSpec(max_rows=8),
    "target 50 ms": BatchingSpec(max_rows=8, target_p99_s=0.050),
    "latest": BatchingSpec(max_rows=8, keeps_latest=True),
}


class Flood(NamedTuple):
    """What one of the cameras does under one policy."""

    policy: str
    times: int


def main(argv: Sequence[str] | None = None) -> None:
    """Run what is named, or all; then write the page from the figures that are kept."""
    parser = argparse.ArgumentParser(prog="python -m load.simulate.docs", description=__doc__)
    parts: dict[str, Callable[[], None]] = {
        **{name: _sweep_of(name) for name in SWEEPS},
        "overload": lambda: replace("overload", overload_table()),
        "refusals": lambda: replace("refusals", refusal_table()),
        "cameras": lambda: replace("cameras", camera_table()),
    }
    parser.add_argument("part", nargs="*", help=f"all where none is named: {', '.join(parts)}")
    parser.add_argument("--page", action="store_true", help="run nothing: the page alone")
    options = parser.parse_args(argv)
    unknown = sorted(set(options.part) - set(parts))
    if unknown:
        parser.error(f"no such part: {', '.join(unknown)}; there are {', '.join(parts)}")
    for name in [] if options.page else options.part or parts:
        parts[name]()
        print(f"{name}: done", flush=True)
    write_page()


def kept_results() -> dict[str, Results]:
    """Return the figures of every sweep as they were kept."""
    return {
        name: read_results(
            CHARTS / f"{name}.csv", policies(setting.curve.max_rows, setting.target_s)
        )
        for name, setting in SWEEPS.items()
    }


def write_page() -> None:
    """Put charts and tables of all sweeps into the page, and who is ahead above them."""
    found = kept_results()
    for name, results in found.items():
        write_chart(CHARTS / f"{name}.svg", SWEEPS[name], results)
        tables = [sweep_table(SWEEPS[name], results, each) for each in processes_of(results)]
        picture = f"![Share in time and 99th percentile over load](charts/{name}.svg)\n"
        replace(name, "\n".join([picture, *tables]))
    replace("leads", lead_table(found))
    replace("behind", behind_table(found))


def replace(name: str, text: str) -> None:
    """Put a text between the marks of its name."""
    page = PAGE.read_text("utf-8")
    pattern = re.compile(rf"(<!-- simulated: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
    if not pattern.search(page):
        raise SystemExit(f"{PAGE} has no place for {name}")
    PAGE.write_text(pattern.sub(lambda found: f"{found[1]}\n{text}\n{found[2]}", page), "utf-8")


def lead_table(found: Mapping[str, Results]) -> str:
    """Return how far the target is ahead of each policy, in points, in every scenario."""
    heads = lead_heads(next(iter(found.values())))
    rows = [row for name, results in found.items() for row in lead_rows(name, results)]
    return "\n".join([*heads, *rows]) + "\n"


def behind_table(found: Mapping[str, Results]) -> str:
    """Return where a fixed delay is better than the target."""
    rows = [row for name, results in found.items() for row in behind_rows(name, results)]
    num_cells = sum(len(processes_of(results)) * len(LOADS) for results in found.values())
    if not rows:
        return f"In none of {num_cells} cells is a fixed delay better.\n"
    return (
        f"In {len(rows)} of {num_cells} cells a fixed delay is better:\n\n"
        "| scenario | arrivals | load | target, % | delay, % | which | points (by seed) |\n"
        "| --- | --- | --: | --: | --: | --- | --: |\n" + "\n".join(rows) + "\n"
    )


def camera_table() -> str:
    """Return what one flooding camera does to 63 others."""
    floods = [Flood(policy, times) for policy in CAMERA_SPECS for times in FLOODS]
    return "\n".join(_camera_rows(zip(floods, spread(_watch, floods), strict=True))) + "\n"


def _camera_rows(seen: Iterator[tuple[Flood, CameraFigures]]) -> Iterator[str]:
    yield "| policy | flood | frames of the others | lost | p99 ms, worst camera |"
    yield "| --- | --: | --: | --: | --: |"
    for (policy, times), figures in seen:
        yield (
            f"| {policy} | {times} × | {figures.num_frames:,} | {figures.num_lost:,} | "
            f"{figures.p99_s * 1e3:.1f} |"
        )


def _watch(flood: Flood) -> CameraFigures:
    return watch_cameras(CAMERA, CAMERA_SPECS[flood.policy], flood=flood.times)


def _sweep_of(name: str) -> Callable[[], None]:
    def made() -> None:
        setting = SWEEPS[name]
        compared = policies(setting.curve.max_rows, setting.target_s)
        CHARTS.mkdir(exist_ok=True)
        write_results(CHARTS / f"{name}.csv", sweep(setting, compared, PROCESSES, LOADS))

    return made


if __name__ == "__main__":
    main()
