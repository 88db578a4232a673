"""`headrace serve`: read the settings, set the log up, run the server."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import click

from headrace.cli.options import SettingsCommand, settings
from headrace.config import ServerConfig, load, unknown_variables
from headrace.errors import ConfigError, HeadraceError
from headrace.escape import printable

log = logging.getLogger(__name__)

_EPILOG = """\b
Every flag is also a variable of the environment and a key in the TOML file
that --config or HEADRACE_CONFIG names: --grpc-port, HEADRACE_GRPC_PORT and
grpc_port. A flag wins over a variable, a variable over the file.
Switches take a word, --allow-metrics=false; alone they mean true.
"""


@click.command(cls=SettingsCommand, params=settings(), epilog=_EPILOG)
@click.argument("model_files", nargs=-1, metavar="[MODEL_FILE]...", type=click.Path(path_type=Path))
@click.option(
    "--config",
    "config_file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="TOML file with settings.",
)
@click.pass_context
def serve(
    ctx: click.Context, /, model_files: tuple[Path, ...], config_file: Path | None, **flags: Any
) -> None:
    """Serve models until Ctrl-C or SIGTERM, which finish what is in flight.

    \b
    headrace serve model.onnx                         as model "model", version 1
    headrace serve --model-repository models          every model in that folder
    headrace serve --model-repository models --grpc-port 9001 --allow-metrics=false
    """  # noqa: D301 (click's mark for lines to keep)
    try:
        config = load(flags, os.environ, config_file=config_file, model_files=model_files)
    except ConfigError as error:
        raise click.UsageError(str(error), ctx) from error
    if not config.model_files and not config.model_repository:
        raise click.UsageError(
            "nothing to serve: name model files, or a folder of models with --model-repository",
            ctx,
        )
    ctx.exit(_run(config))


def _run(config: ServerConfig) -> int:
    # Late, so that --help does not wait for engines and transports.
    from headrace.app import run
    from headrace.logging_setup import set_up_logging

    log_control = set_up_logging(config)
    for sentence in unknown_variables(os.environ):
        log.warning("%s", sentence)
    try:
        return run(config, log_control)
    except HeadraceError as error:
        raise click.ClickException(printable(str(error))) from error
