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
@click.option(
    "--picture",
    type=click.Path(path_type=Path),
    help="Draw a stretch of the trace into this SVG file.",
)
@click.option(
    "--from",
    "from_ms",
    type=click.FloatRange(0),
    help="Milliseconds at which the picture begins, instead of the middle of the trace.",
)
@click.option(
    "--for",
    "for_ms",
    type=click.FloatRange(0, min_open=True),
    default=10.0,
    show_default=True,
    help="Milliseconds that the picture shows.",
)
def timeline(
    file: Path, *, as_json: bool, picture: Path | None, from_ms: float | None, for_ms: float
) -> None:
    """Sum up a trace that `headrace serve --timeline FILE` recorded.

    Tells the mean time in each stage, and the share of copy time that was hidden behind the compute
    of other slots. To see the trace, open FILE in https://ui.perfetto.dev or chrome://tracing.
    """
    from headrace.timeline.trace import read_events

    try:
        events, summary = read_events(file)
    except ConfigError as error:
        raise click.ClickException(printable(str(error))) from error
    if picture is not None:
        from headrace.timeline.picture import Window, middle, svg

        length_us = for_ms * 1e3
        window = middle(events, length_us)
        if from_ms is not None:
            window = Window(from_ms * 1e3, from_ms * 1e3 + length_us)
        picture.write_text(svg(events, window, file.name), "utf-8")
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
