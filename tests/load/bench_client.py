"""`headrace-client bench` for load tools: a client in a process of its own."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from helpers.server import HEADRACE, Server


def bench(server: Server, *arguments: str) -> dict[str, Any]:
    """Return what it saw at its one level, with these arguments."""
    command = [str(HEADRACE.with_name("headrace-client")), "bench", "-u", server.address]
    command += [*arguments, "--json", "-q"]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    (level,) = json.loads(done.stdout)["levels"]
    seen: dict[str, Any] = level["seen"]
    return seen
