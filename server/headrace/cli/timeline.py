"""`headrace timeline`: what a recorded trace says, without a viewer."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headrace.errors import ConfigError
from headrace.escape import printable

if TYPE_CHECKING:
    from headrace.timeline.trace import Summary


@click.command()
@click.argument("file", metavar="FILE", type=click.Path(exists=True, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Write JSON.")
def timeline(file: Path, as_json: bool) -> None:
    """Sum up a trace that `headrace serve --timeline FILE` recorded.

    Tells the mean time in each stage, and the share of copy time that was hidden behind the compute
    of other slots. To see the trace, open FILE in https://ui.perfetto.dev or chrome://tracing.
    """
    from headrace.timeline.trace import read_trace

    try:
        summary = read_trace(file)
    except ConfigError as error:
        raise click.ClickException(printable(str(error))) from error
    if as_json:
        click.echo(json.dumps(_as_dict(summary), indent=2))
    else:
        _print(summary)


def _print(summary: Summary) -> None:
    from headrace.table import print_facts

    work = summary.work
    hidden = "no copies"
    if work.hidden_share is not None:
        hidden = f"{work.hidden_share:.1%} of {work.copy_s * 1e3:.3f} ms"
    facts: list[tuple[str, object]] = [
        ("requests", f"{summary.num_requests:,} over {summary.wall_s:.3f} s"),
        ("lanes", summary.num_lanes),
        *((f"mean {name}", f"{mean_s * 1e3:.3f} ms") for name, mean_s in summary.stage_s.items()),
        ("copies hidden behind compute", hidden),
    ]
    print_facts(facts, sys.stdout)
    if summary.is_sampled:
        click.echo(
            "note: requests were sampled; what was not recorded cannot hide a copy", err=True
        )


def _as_dict(summary: Summary) -> dict[str, object]:
    work = summary.work
    return {
        "num_requests": summary.num_requests,
        "wall_s": summary.wall_s,
        "num_lanes": summary.num_lanes,
        "mean_stage_s": summary.stage_s,
        "copy_s": work.copy_s,
        "hidden_copy_s": work.hidden_s,
        "hidden_copy_share": work.hidden_share,
        "compute_s": work.compute_s,
        "is_sampled": summary.is_sampled,
    }
