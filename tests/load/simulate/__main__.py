"""`python -m load.simulate`: policies against each other in virtual time; see --help."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from load.simulate.arrivals import PROCESSES
from load.simulate.core import HostCost
from load.simulate.curves import CURVES, read_curve
from load.simulate.kept import write_results
from load.simulate.policies import policies
from load.simulate.sweep import LOADS, SEEDS, Setting, sweep
from load.simulate.tables import drop_table, sweep_table


def main(argv: Sequence[str] | None = None) -> None:
    """Run the sweep that the command line asks for; print its tables, and write what it names."""
    options = _parser().parse_args(argv)
    setting = Setting(
        curve=read_curve(options.curve),
        num_slots=options.slots,
        target_s=options.target_ms / 1e3,
        has_deadlines=options.deadlines,
        duration_s=options.seconds,
        host=HostCost(options.accept_us / 1e6, options.refuse_us / 1e6, options.reply_us / 1e6),
    )
    compared = policies(setting.curve.max_rows, setting.target_s)
    results = sweep(setting, compared, options.process, options.loads, options.seeds)
    for process in options.process:
        print(sweep_table(setting, results, process))
    print(drop_table(results))
    if options.csv:
        write_results(options.csv, results)
    if options.chart:
        from load.simulate.chart import write_chart  # so that tables need no drawing library

        write_chart(options.chart, setting, results)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m load.simulate", description=__doc__)
    add = parser.add_argument
    add("--curve", default="resnet50_h200", help=f"a JSON file, or one of {', '.join(CURVES)}")
    add("--slots", type=int, default=1, help="streams that share the device")
    add("--target-ms", type=float, default=10.0, help="an answer within so many is good")
    add("--deadlines", action="store_true", help="clients send the target as their deadline")
    add("--seconds", type=float, default=1.0, help="of arrivals in each run; on/off: twice as many")
    add("--seeds", nargs="+", type=int, default=SEEDS, help="each gives arrivals of its own")
    add("--process", nargs="+", choices=PROCESSES, default=["poisson", "on/off"])
    add("--loads", nargs="+", type=float, default=LOADS, help="1 is all that the device can do")
    for what in ("accept", "refuse", "reply"):
        add(f"--{what}-us", type=float, default=0.0, help=f"host time to {what} a request")
    add("--csv", type=Path, help="write all figures, a line a run")
    add("--chart", type=Path, help="write an SVG")
    return parser


if __name__ == "__main__":
    main()
