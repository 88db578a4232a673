"""`headrace version` says what is installed."""

from __future__ import annotations

import json
from importlib.metadata import version

import onnxruntime
from click.testing import CliRunner

from headrace.cli import main


def test_versions_are_those_installed() -> None:
    """Numbers are the distributions' own; text says of what is absent how to get it."""
    told = json.loads(CliRunner().invoke(main, ["version", "--json"]).stdout)
    assert told["headrace"] == version("headrace-server")
    assert told["packages"]["onnxruntime"] == onnxruntime.__version__
    text = CliRunner().invoke(main, ["version"]).stdout
    assert text.startswith(f"headrace {told['headrace']}\n")
    absent = [package for package, number in told["packages"].items() if number is None]
    assert text.count("not installed (") == len(absent)
