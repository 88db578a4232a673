"""A real `headrace serve` in its own process, on free ports of 127.0.0.1, for tests to talk to."""

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event, Thread
from time import monotonic
from typing import Self

from helpers import process_tree
from helpers.scrape import Scrape

TRANSPORTS = ("grpcio", "native")
HEADRACE = Path(sys.executable).with_name("headrace")
_READY = re.compile(r"^headrace ready: grpc=(\S+) metrics=(\S+)\s*$")
# asyncio's debug mode costs as much as all the rest; any text switches it on, "0" as well.
NO_DEBUG = {"PYTHONASYNCIODEBUG": ""}
START_S = 60.0  # warm-up of every model on a machine that does other things too
STOP_S = 40.0  # the server's own grace is 30


class Server:
    """One running server, and what it printed.

    Attributes:
        address: "127.0.0.1:PORT" of the gRPC port.
        metrics_address: the same of the metrics port, "-" when it is off.
        pid: of the process that was started (it may have children).
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.pid = process.pid
        self.process = process
        self.address = ""
        self.metrics_address = ""
        self._is_told = False  # to end
        self._lines: list[str] = []
        self._ready_or_ended = Event()
        self._reader = Thread(target=self._read, name="server-output", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                self._lines.append(line)
                if found := _READY.match(line):
                    self.address, self.metrics_address = found.groups()
                    self._ready_or_ended.set()
        self._ready_or_ended.set()

    def output(self) -> str:
        """Everything that the server has printed so far, both streams in order."""
        return "".join(self._lines)

    def wait_ready(self, timeout_s: float = START_S) -> None:
        """Returns when the server says that it is ready; fails with its output when it does not."""
        in_time = self._ready_or_ended.wait(timeout_s)
        if not self.address:
            why = f"ended with {self.process.wait(5)}" if in_time else f"not ready in {timeout_s} s"
            raise AssertionError(f"headrace serve: {why}\n{self.output()}")

    def tell_to_end(self) -> None:
        """SIGTERM, once: a second one cuts the end short. Returns at once."""
        if not self._is_told:
            self._is_told = True
            self.process.send_signal(signal.SIGTERM)

    @property
    def is_running_or_told(self) -> bool:
        """Whether it has not ended by itself."""
        return self._is_told or self.process.poll() is None

    def stop(self, timeout_s: float = STOP_S) -> int:
        """SIGTERM, then the exit code; killed and failed when it does not end in time."""
        self.tell_to_end()
        try:
            code = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(
                f"not ended {timeout_s} s after SIGTERM\n{self.output()}"
            ) from None
        self._reader.join(5)
        return code

    def kill(self) -> None:
        """Ends the process at once, and its children with it."""
        for pid in reversed(process_tree.tree(self.pid)):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait()
        self._reader.join(5)

    def rss_bytes(self) -> int:
        """Resident memory of the server and its children."""
        return process_tree.rss_bytes(self.pid)

    def metrics(self) -> dict[str, float]:
        """Sample name → its value, summed over labels."""
        totals: dict[str, float] = defaultdict(float)
        for name, _, value in Scrape(self.metrics_address).samples:
            totals[name] += value
        return dict(totals)

    def wait_metrics(
        self, until: Callable[[dict[str, float]], bool], timeout_s: float = 10.0
    ) -> dict[str, float]:
        """Scrapes until the figures satisfy `until`; the last ones, satisfied or not."""
        end = monotonic() + timeout_s
        while not until(seen := self.metrics()) and monotonic() < end:
            pass
        return seen


def start(
    *arguments: str | Path, env: Mapping[str, str] | None = None, headrace: Path = HEADRACE
) -> Server:
    """Starts `headrace serve` with `arguments` on free ports; returns at once."""
    command = [headrace, "serve", "--grpc-port", "0", "--metrics-port", "0"]
    command += ["--grpc-address", "127.0.0.1", "--metrics-address", "127.0.0.1", *arguments]
    process = subprocess.Popen(
        [str(part) for part in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**os.environ, "PYTHONUNBUFFERED": "1", **(env or {})},
    )
    return Server(process)


@contextmanager
def serving(
    *arguments: str | Path, env: Mapping[str, str] | None = None, headrace: Path = HEADRACE
) -> Iterator[Server]:
    """A ready server; at the end SIGTERM, and exit code 0 is asked of it."""
    server = start(*arguments, env=env, headrace=headrace)
    try:
        server.wait_ready()
        yield server
        assert server.is_running_or_told, f"ended by itself\n{server.output()}"
        code = server.stop()
        assert code == 0, f"exit code {code}\n{server.output()}"
    finally:
        if server.process.poll() is None:
            server.kill()
        if sys.exc_info()[0] is not None:
            sys.stderr.write(f"--- headrace serve printed:\n{server.output()}")


def launcher(folder: Path) -> Path:
    """Return a `headrace` for the Python at hand, where none is installed beside it."""
    path = folder / "headrace"
    text = f"#!{sys.executable}\nfrom headrace.cli import main\n\nmain()\n"
    path.write_text(text, "utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


class ServerPool:
    """Servers for a whole test session, one for each set of arguments, started on demand."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._running: dict[tuple[str, ...], Server] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for server in self._running.values():  # so that they end side by side
            server.tell_to_end()
        self._stack.close()

    def get(self, *arguments: str | Path) -> Server:
        """The server with these arguments; asyncio's debug mode is off, for it costs a third."""
        key = tuple(map(str, arguments))
        if key not in self._running:
            context = serving(*arguments, env=NO_DEBUG)
            self._running[key] = self._stack.enter_context(context)
        return self._running[key]
