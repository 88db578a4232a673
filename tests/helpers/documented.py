"""The examples in the documentation, run as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence

from helpers.tree import REPOSITORY

ADDRESS = "localhost:8001"  # of the server, in every example
EXAMPLE_S = 60.0  # where a GPU is woken up


def examples(path: str) -> list[str]:
    """The Python blocks of a page, in order."""
    return re.findall(r"```python\n(.*?)```", (REPOSITORY / path).read_text("utf-8"), re.DOTALL)


def run_examples(parts: Sequence[str], address: str) -> str:
    """Run the parts as one program that asks this server; what it printed."""
    program = "\n".join(parts).replace(ADDRESS, address)
    done = subprocess.run(
        [sys.executable, "-c", program],
        check=False,
        capture_output=True,
        text=True,
        timeout=EXAMPLE_S,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
