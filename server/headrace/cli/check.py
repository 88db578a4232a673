"""`headrace check`: every fault of model repositories, before a server meets them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headrace.errors import ConfigError
from headrace.escape import printable

if TYPE_CHECKING:
    from headrace.engines.repository_check import Checked


@click.command()
@click.argument(
    "paths",
    metavar="REPOSITORY|MODEL_FILE...",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, path_type=Path),
)
@click.option(
    "--disable-auto-complete-config",
    "is_strict",
    is_flag=True,
    help="Demand complete configurations, as `headrace serve` does with this flag.",
)
@click.option("--json", "as_json", is_flag=True, help="Write JSON.")
@click.pass_context
def check(ctx: click.Context, paths: tuple[Path, ...], is_strict: bool, as_json: bool) -> None:
    """Check models as loading them would, and list every fault.

    A REPOSITORY is a folder of model folders. Exit code 0: every model can be served. 1: not all.
    Plans are checked against their engine only where TensorRT and a GPU are at hand.
    """
    from headrace.cli.openers import opened
    from headrace.engines.repository_check import check_repository

    repositories = [path for path in paths if path.is_dir()]
    files = [path for path in paths if not path.is_dir()]
    with opened() as openers:
        checked = check_repository(
            repositories, files, openers=openers, auto_complete=not is_strict
        )
    if as_json:
        click.echo(json.dumps(_as_dict(checked), indent=2))
    else:
        _print(checked)
    ctx.exit(1 if checked.faults else 0)


def _print(checked: Checked) -> None:
    for note in checked.notes:
        click.echo(f"note: {printable(note)}")
    for warning in checked.warnings:
        click.echo(click.style("warning: ", fg="yellow") + printable(warning))
    for fault in checked.faults:
        click.echo(click.style("fault: ", fg="red") + printable(str(fault)))
    for model in checked.models:
        versions = ", ".join(map(str, model.versions))
        click.echo(f"found: {model.name} ({model.config.platform}), version {versions}")
    click.echo(_summary(checked))


def _summary(checked: Checked) -> str:
    if not checked.models and not checked.faults:
        return "no models: a repository holds MODEL/VERSION/model.onnx or model.plan"
    if not checked.faults:
        return click.style(f"{_num(len(checked.models), 'model')}, no faults", fg="green")
    return click.style(_num(len(checked.faults), "fault"), fg="red")


def _num(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _as_dict(checked: Checked) -> dict[str, object]:
    return {
        "models": [
            {"name": model.name, "platform": model.config.platform, "versions": model.versions}
            for model in checked.models
        ],
        "faults": [_fault(fault) for fault in checked.faults],
        "warnings": checked.warnings,
        "notes": checked.notes,
    }


def _fault(fault: ConfigError) -> dict[str, str | None]:
    return {"path": fault.path, "field": fault.field, "reason": fault.reason}
