"""The command line: serve, inspect, check, version. One file for each command."""

from __future__ import annotations

from headrace.cli.group import main

__all__ = ["main"]
