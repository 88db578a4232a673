"""Starts `headrace serve` for the demo, waits until it is ready, and stops it by SIGTERM."""

from __future__ import annotations

import queue
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import NamedTuple

READY = re.compile(r"headrace ready: grpc=(\S+) metrics=(\S+)")
START_S = 60.0
STOP_S = 40.0


class DemoError(Exception):
    """The demo cannot go on; the text says why."""


class Addresses(NamedTuple):
    """Where the server listens, each as host:port."""

    grpc: str
    metrics: str


@contextmanager
def serving(repositories: Sequence[Path]) -> Iterator[Addresses]:
    """Serve the repositories on free ports of this machine until the block ends.

    Raises:
        DemoError: The server did not start, or did not stop with exit code 0.
    """
    command = [str(Path(sys.executable).with_name("headrace")), "serve"]
    command += ["--grpc-address", "127.0.0.1", "--metrics-address", "127.0.0.1"]
    command += ["--grpc-port", "0", "--metrics-port", "0"]
    for repository in repositories:
        command += ["--model-repository", str(repository)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    reader = threading.Thread(target=_read, args=(process, lines), daemon=True)
    reader.start()
    try:
        yield _wait_ready(lines)
    finally:
        code = _stop(process)
        reader.join()
    if code:
        raise DemoError(f"the server stopped with {code}; expected exit code 0 after SIGTERM")


def _read(process: subprocess.Popen[str], lines: queue.SimpleQueue[str]) -> None:
    assert process.stdout is not None
    with process.stdout:
        for line in process.stdout:
            lines.put(line)
    lines.put("")  # the end


def _wait_ready(lines: queue.SimpleQueue[str]) -> Addresses:
    seen = ""
    deadline = monotonic() + START_S
    while True:
        try:
            line = lines.get(timeout=max(0.0, deadline - monotonic()))
        except queue.Empty:
            raise DemoError(f"the server was not ready after {START_S} s:\n{seen}") from None
        if not line:
            raise DemoError(f"the server ended before it was ready:\n{seen}")
        seen += line
        if found := READY.search(line):
            return Addresses(*found.groups())


def _stop(process: subprocess.Popen[str]) -> int:
    """Return the exit code; that of SIGKILL when the server does not stop by itself."""
    process.send_signal(signal.SIGTERM)
    try:
        return process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()
