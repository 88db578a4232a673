"""`headrace inspect`: what a model file or a model's folder is, for people or as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headrace.errors import HeadraceError
from headrace.escape import printable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.cli.model_report import FileReport, ModelReport


@click.command()
@click.argument("path", metavar="FILE|FOLDER", type=click.Path(exists=True, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Write JSON.")
def inspect(path: Path, as_json: bool) -> None:
    """Show the signature, the configuration and the origin of a model.

    FILE is an ONNX model or a TensorRT plan, FOLDER a model's folder in a repository. The signature
    of a plan needs TensorRT and a GPU that can load it; who built it for what is told anywhere.
    """
    from headrace.cli.model_report import report_on
    from headrace.cli.openers import opened

    try:
        with opened() as openers:
            report = report_on(path, openers)
    except HeadraceError as error:
        faults = map(printable, str(error).splitlines())
        raise click.ClickException("\n".join(faults)) from error
    if as_json:
        click.echo(json.dumps(report.as_dict(), indent=2))
    else:
        _print(report)


def _print(report: ModelReport) -> None:
    from google.protobuf import text_format

    for file in report.files:
        _print_file(file)
    click.echo(f"configuration of {report.name}, completed:\n")
    text = text_format.MessageToString(report.config)
    click.echo("".join(f"  {line}\n" for line in text.splitlines()))
    for note in report.notes:
        click.echo(f"note: {note}", err=True)


def _print_file(file: FileReport) -> None:
    from headrace.table import print_facts, print_table

    inspection = file.inspection
    facts: list[tuple[str, Any]] = [
        ("file", inspection.path),
        ("version", file.version),
        ("platform", inspection.platform.name),
        ("size", f"{inspection.size_bytes:,} bytes"),
    ]
    if (header := inspection.header) is not None:
        facts += [("magic", header.magic), ("origin", header.describe())]
        if header.is_wrapped:
            facts.append(("plan starts", f"at byte {header.offset_bytes:,}, after a text"))
    if inspection.probe is not None and inspection.probe.memory_bytes:
        facts.append(("memory", _memory(inspection.probe.memory_bytes)))
    if inspection.reason:
        facts.append(("signature", f"not known: {inspection.reason}"))
    print_facts(facts, sys.stdout)
    click.echo()
    rows = [(side, name, datatype, _shape(shape)) for side, name, datatype, shape in file.tensors()]
    if rows:
        print_table(("", "tensor", "datatype", "shape"), rows, sys.stdout)
        click.echo()


def _memory(memory_bytes: Mapping[str, int]) -> str:
    weights = f"{memory_bytes['weights']:,} bytes" if memory_bytes["weights"] else "unknown"
    return (
        f"weights {weights} once; a slot {memory_bytes['context']:,} bytes of activations and two "
        f"lanes of {memory_bytes['lane']:,} bytes; a request a pinned block of "
        f"{memory_bytes['block']:,} bytes"
    )


def _shape(shape: tuple[int | None, ...]) -> str:
    return f"[{', '.join('?' if dim is None else str(dim) for dim in shape)}]"
