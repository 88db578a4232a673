"""`headrace build`: an ONNX model into a plan, and an honest account of what was built."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from headrace.cli.build_report import as_dict, facts
from headrace.errors import ConfigError, HeadraceError
from headrace.escape import printable

if TYPE_CHECKING:
    from headrace.building import BuildOptions, Built

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""

_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def _size(_ctx: click.Context, _param: click.Parameter, value: str | None) -> int | None:
    """Read `512M` or `4G`."""
    if value is None:
        return None
    found = re.fullmatch(r"(\d+)([KMG])(?:iB|B)?", value, re.IGNORECASE)
    if found is None:
        raise click.BadParameter(f"{value!r}: expected a number with a unit, such as 512M or 4G")
    return int(found[1]) * _UNITS[found[2].upper()]


_SHAPES = "name:AxBxC,…"


@click.command()
@click.argument("model", metavar="MODEL.onnx", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="The plan. Default: the model's name with .plan. Replaced only by a finished plan.",
)
@click.option(
    "--backend",
    "wanted",
    type=click.Choice(["auto", "tensorrt", "rtx"]),
    default="auto",
    show_default=True,
    help="tensorrt builds for the GPU here; rtx needs none; auto: tensorrt where there is a GPU.",
)
@click.option(
    "--min",
    "minima",
    metavar=_SHAPES,
    multiple=True,
    help="Smallest shapes, in trtexec's notation. Once for each optimization profile. "
    "Default: those of --opt.",
)
@click.option(
    "--opt", "optima", metavar=_SHAPES, multiple=True, help="Shapes to tune for; else --max's."
)
@click.option(
    "--max", "maxima", metavar=_SHAPES, multiple=True, help="Largest shapes; else --opt's."
)
@click.option(
    "--config",
    "config_path",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="config.pbtxt to take shapes from when none are given: 1 to max_batch_size rows. "
    "Default: the one beside the model, or above the folder of its version.",
)
@click.option("--fp16", is_flag=True, help="Allow fp16. TensorRT 10 only: later it is the graph's.")
@click.option("--bf16", is_flag=True, help="Allow bf16. TensorRT 10 only.")
@click.option("--int8", is_flag=True, help="Allow int8, for graphs with Q/DQ. TensorRT 10 only.")
@click.option("--fp8", is_flag=True, help="Allow fp8, for graphs with Q/DQ. TensorRT 10 only.")
@click.option(
    "--strongly-typed", is_flag=True, help="Keep to the graph's types; always so from 11.0 on."
)
@click.option("--no-tf32", is_flag=True, help="Compute fp32 products in full precision.")
@click.option(
    "--timing-cache",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="What was measured of kernels: read, and written after the build. Not for RTX.",
)
@click.option(
    "--version-compatible",
    is_flag=True,
    help="Let later releases run the plan. It then carries code that runs on the host: it is "
    "served only with --allow-host-code, or by the lean runtime without that code.",
)
@click.option(
    "--exclude-lean-runtime", is_flag=True, help="Leave that code out: for tensorrt_lean."
)
@click.option(
    "--hardware-compatibility",
    "hardware",
    type=click.Choice(["none", "ampere+", "same-compute-capability"]),
    default="none",
    show_default=True,
    help="Other GPU models that shall run the plan. Not for RTX.",
)
@click.option(
    "--compute-capabilities",
    metavar="8.6,8.9,…",
    default="",
    help="RTX only: GPUs that shall run the plan. Default: all that RTX knows.",
)
@click.option(
    "--workspace",
    "workspace_bytes",
    callback=_size,
    metavar="SIZE",
    help="Scratch memory that a layer may use at most, such as 4G.",
)
@click.option(
    "--optimization-level",
    type=click.IntRange(0, 5),
    help="0 builds fast, 5 builds the fastest plan. Default: TensorRT's, 3.",
)
@click.option(
    "--max-aux-streams",
    type=click.IntRange(0, 127),
    default=0,
    show_default=True,
    help="Streams that a context may use beside its slot's. 0, because slots fill the GPU "
    "already: with n of them, S slots would be S x (1 + n) streams that compete.",
)
@click.option("--dry-run", "is_dry_run", is_flag=True, help="Check everything, and build nothing.")
@click.option("--json", "is_json", is_flag=True, help="Write the account as JSON.")
@click.option("-v", "--verbose", count=True, help="Show TensorRT's log; twice for all of it.")
@click.pass_context
def build(
    ctx: click.Context,
    /,
    model: Path,
    output: Path | None,
    is_json: bool,
    verbose: int,
    **flags: Any,
) -> None:
    """Build a TensorRT plan from an ONNX model.

    \b
    headrace build model.onnx --min x:1x4 --opt x:8x4 --max x:32x4
    headrace build models/resnet/1/model.onnx           shapes from resnet/config.pbtxt
    headrace build model.onnx --backend rtx --compute-capabilities 8.9,12.0

    Exit code 0: the plan is there, and loads where it can be tried. 1: nothing was written. 2: a
    flag is wrong. 130: Ctrl-C.
    """  # noqa: D301 (click's mark for lines to keep)
    from headrace.cli.build_log import set_up_log

    set_up_log(verbose)
    try:
        built = _run(model, output or model.with_suffix(".plan"), **flags)
    except HeadraceError as error:
        raise click.ClickException(printable(str(error))) from error
    except KeyboardInterrupt:
        click.echo("ended; nothing was written", err=True)
        ctx.exit(INTERRUPTED)
    _print(built, is_json=is_json)


def _run(
    model: Path,
    output: Path,
    *,
    wanted: Literal["auto", "tensorrt", "rtx"],
    is_dry_run: bool,
    **flags: Any,
) -> Built:
    from headrace.building import build_plan
    from headrace.building.choice import choose_builder
    from headrace.cli.build_progress import shown
    from headrace.cli.openers import gpu_here

    options = _options(**flags)
    with gpu_here() as device, shown() as listener:
        backend = choose_builder(wanted, options, device)
        return build_plan(
            backend,
            model,
            output,
            options,
            device=device,
            listener=listener,
            is_dry_run=is_dry_run,
        )


def _options(
    *,
    minima: tuple[str, ...],
    optima: tuple[str, ...],
    maxima: tuple[str, ...],
    compute_capabilities: str,
    no_tf32: bool,
    **flags: Any,
) -> BuildOptions:
    from headrace.building import BuildOptions
    from headrace.building.notation import parse_profiles
    from headrace.building.options import PRECISIONS

    try:
        profiles = parse_profiles(minima, optima, maxima)
    except ConfigError as error:
        raise click.UsageError(printable(str(error))) from error
    precisions = tuple(name for name in PRECISIONS if flags.pop(name))
    capabilities = tuple(each.strip() for each in compute_capabilities.split(",") if each.strip())
    return BuildOptions(
        profiles=profiles,
        precisions=precisions,
        compute_capabilities=capabilities,
        allow_tf32=not no_tf32,
        **flags,
    )


def _print(built: Built, *, is_json: bool) -> None:
    from headrace.table import print_facts

    if is_json:
        click.echo(json.dumps(as_dict(built), indent=2))
    else:
        print_facts(facts(built), sys.stdout)
