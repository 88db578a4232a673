"""The command `headrace` and what its commands have in common."""

from __future__ import annotations

import click

from headrace.cli.build import build
from headrace.cli.check import check
from headrace.cli.inspect import inspect
from headrace.cli.ladder import ladder
from headrace.cli.serve import serve
from headrace.cli.timeline import timeline
from headrace.cli.version import version

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


@click.group(context_settings=CONTEXT, epilog="headrace COMMAND --help says more of each.")
def main() -> None:
    """Serve models over gRPC, in the protocol of Triton and KServe.

    \b
    headrace serve model.onnx                    one model, nothing to configure
    headrace serve --model-repository models     a folder of models
    headrace build model.onnx -o model.plan      for TensorRT
    headrace inspect model.plan                  what is in that file?
    headrace check models                        is anything wrong in that folder?
    headrace ladder model.onnx                   what do streams, graphs and batches bring?
    """  # noqa: D301 (click's mark for lines to keep)


for command in (serve, build, inspect, check, ladder, timeline, version):
    main.add_command(command)
