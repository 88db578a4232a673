"""`python -m headrace` is the command."""

from __future__ import annotations

import subprocess
import sys

from headrace.cli.group import main


def test_the_package_runs_as_a_module() -> None:
    """Every command is offered, and help calls the program by its name."""
    done = subprocess.run(
        [sys.executable, "-m", "headrace", "--help"],
        check=False,
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Usage: headrace ")
    listed = done.stdout.split("Commands:")[1].split()
    assert main.commands.keys() <= set(listed)
