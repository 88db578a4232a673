"""`headrace ladder`: what streams, graphs and batches bring for one model on this machine."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headrace.errors import ConfigError, HeadraceError
from headrace.escape import printable

if TYPE_CHECKING:
    from headrace.ladder.figures import Result
    from headrace.ladder.report import Report


@click.command()
@click.argument("model", metavar="MODEL", type=click.Path(exists=True, path_type=Path))
@click.option(
    "--device",
    type=click.Choice(("auto", "host", "cudart")),
    default="auto",
    show_default=True,
    help="Where to run: the CPU, a GPU, or a GPU if there is one.",
)
@click.option("--gpu", type=click.IntRange(0), default=0, show_default=True, help="Its index.")
@click.option(
    "--seconds",
    "seconds_s",
    type=click.FloatRange(0, min_open=True),
    default=2.0,
    show_default=True,
    help="How long each rung is measured.",
)
@click.option(
    "--rungs",
    metavar="NAMES",
    help="Only these, separated by commas: sync,async,double,2,4,8,16,graphs,batch.",
)
@click.option(
    "--shape",
    "shapes",
    metavar="INPUT:DIMS",
    multiple=True,
    help="Shape of an input, such as input:1x3x224x224. May be given several times. By default "
    "inputs are as small as the model takes them.",
)
@click.option(
    "--rows",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Batch dimension of the requests below the batch rungs, where no shape is given.",
)
@click.option(
    "--json", "json_file", type=click.Path(path_type=Path), help="Write JSON to this file as well."
)
@click.option(
    "--chart",
    "chart_file",
    type=click.Path(path_type=Path),
    help="Draw a chart: FILE.svg or FILE.html.",
)
@click.option("--quiet", is_flag=True, help="Do not tell the rungs on the way.")
@click.pass_context
def ladder(
    ctx: click.Context,
    /,
    *,
    model: Path,
    device: str,
    gpu: int,
    seconds_s: float,
    rungs: str | None,
    shapes: tuple[str, ...],
    rows: int,
    json_file: Path | None,
    chart_file: Path | None,
    quiet: bool,
) -> None:
    """Measure one engine with one input, from synchronous on one stream to many streams.

    MODEL is a model file or a model's folder. Rung by rung: synchronous, asynchronous, double
    buffer, 2 to 16 streams, CUDA graphs, batches of 2 to 32. Each tells throughput, latency, how
    busy host, copy engines and compute were, and which of them is the limit; the end is a
    recommendation. docs/ladder.md says what each figure means.

    \b
    headrace ladder model.onnx
    headrace ladder model.onnx --shape input:8x3x224x224 --chart ladder.svg
    headrace ladder model.plan --rungs sync,4,graphs --json ladder.json
    """  # noqa: D301 (click's mark for lines to keep)
    if chart_file is not None and chart_file.suffix.lower() not in (".svg", ".html"):
        raise click.UsageError(f"--chart: got {str(chart_file)!r}, expected FILE.svg or .html", ctx)
    try:
        report = _measured(
            model=model,
            device=device,
            gpu=gpu,
            seconds_s=seconds_s,
            rungs=rungs,
            shapes=shapes,
            rows=rows,
            quiet=quiet,
        )
    except ConfigError as error:
        raise click.UsageError(printable(str(error)), ctx) from error
    except HeadraceError as error:
        raise click.ClickException(printable(str(error))) from error
    _write(report, json_file, chart_file)
    ctx.exit(0 if report.advice is not None else 1)


def _measured(
    *,
    model: Path,
    device: str,
    gpu: int,
    seconds_s: float,
    rungs: str | None,
    shapes: tuple[str, ...],
    rows: int,
    quiet: bool,
) -> Report:
    from headrace.ladder.climb import climb, opened_subject, report_on
    from headrace.ladder.rungs import ALL_RUNGS, parse_rungs
    from headrace.ladder.subject import parse_shape

    wanted = ALL_RUNGS if rungs is None else parse_rungs(rungs)
    by_name = dict(parse_shape(text) for text in shapes)
    opened = opened_subject(model, device=device, gpu=gpu, shapes=by_name, rows=rows)
    with opened as (subject, platform):
        results = climb(
            subject,
            wanted,
            seconds_s=seconds_s,
            clock=time.monotonic,
            on_result=(lambda _: None) if quiet else _tell,
        )
        return report_on(subject, results, model=model.name, platform=platform, seconds_s=seconds_s)


def _tell(result: Result) -> None:
    """Say how it goes, on standard error."""
    figures = result.figures
    found = printable(result.error) if figures is None else f"{figures.rows_per_s:,.0f} rows/s"
    click.echo(f"{result.rung.name}: {found}", err=True)


def _write(report: Report, json_file: Path | None, chart_file: Path | None) -> None:
    from headrace.ladder.chart import html, svg
    from headrace.ladder.report import print_report

    print_report(report, sys.stdout)
    if json_file is not None:
        json_file.write_text(json.dumps(report.as_dict(), indent=2) + "\n", "utf-8")
    if chart_file is not None:
        draw = html if chart_file.suffix.lower() == ".html" else svg
        chart_file.write_text(draw(report), "utf-8")
