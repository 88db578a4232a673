"""`headrace version`: what is installed, without importing any of it."""

from __future__ import annotations

import json
import platform
import sys
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed
from typing import Final

import click

_PACKAGES: Final = {
    "grpcio": "",
    "protobuf": "",
    "numpy": "",
    "onnxruntime": "extra [onnxruntime]",
    "onnxruntime-gpu": "extra [onnxruntime-gpu]",
    "tensorrt": "extra [tensorrt]",
    "tensorrt_lean": "for version-compatible plans only",
    "tensorrt_rtx": "for TensorRT-RTX plans",
    "cuda-bindings": "extra [cuda]",
    "nvidia-ml-py": "extra [cuda]",
    "pygrpc-native": "extra [native]",
}
"""Packages that decide what a server can do, and where an absent one would come from."""


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Write JSON.")
def version(as_json: bool) -> None:
    """Show the version of headrace and of what it can use."""
    from headrace.release import release
    from headrace.table import print_facts

    found = {package: _installed(package) for package in _PACKAGES}
    ours = release()
    if as_json:
        facts = {"headrace": ours, "python": platform.python_version(), "packages": found}
        click.echo(json.dumps(facts, indent=2))
        return
    click.echo(f"headrace {ours}\n")
    rows = [("python", platform.python_version())]
    rows += [
        (package, number or f"not installed ({_PACKAGES[package]})")
        for package, number in found.items()
    ]
    print_facts(rows, sys.stdout)


def _installed(package: str) -> str | None:
    try:
        return installed(package)
    except PackageNotFoundError:
        return None
