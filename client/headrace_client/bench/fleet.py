"""The worker processes, from the side of the process that started them."""

from __future__ import annotations

import multiprocessing.connection
import os
import socket
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Self

from headrace_client.bench.level import Ended, Failed, Job, Level, Run, Stop
from headrace_client.bench.record import Rows
from headrace_client.errors import HeadraceClientError

START_S = 60.0  # for an interpreter and its imports, on a machine that is busy
LEAD_S = 0.1  # between telling the workers when to start and that time
_END_S = 5.0
# glibc gives large blocks back to the system after each message, unless it is told to keep them;
# with 6 MB messages that takes more time than all the rest.
KEEP_LARGE_BLOCKS = {
    "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
    "MALLOC_TOP_PAD_": str(64 << 20),
}


class WorkerError(HeadraceClientError):
    """A worker process could not do its work."""


class Fleet:
    """So many processes with a job; they are started on entering and ended on leaving.

    Args:
        job: What each of them does; its index is filled in here.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._processes: list[subprocess.Popen[bytes]] = []
        self._pipes: list[Connection] = []

    def __enter__(self) -> Self:
        try:
            for index in range(self._job.num_workers):
                self._start(replace(self._job, index=index))
            deadline = time.monotonic() + START_S + (self._job.settings.deadline_s(None) or 0.0)
            for pipe in self._pipes:
                if not pipe.poll(max(0.0, deadline - time.monotonic())):
                    raise WorkerError(f"a worker process did not start within {START_S:g} s")
                self._receive(pipe)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the processes. May be called again."""
        pipes, self._pipes = self._pipes, []
        for pipe in pipes:
            pipe.close()  # which each takes for the end
        deadline = time.monotonic() + _END_S
        for process in self._processes:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes = []

    @property
    def size(self) -> int:
        """How many processes there are."""
        return self._job.num_workers

    def begin(self, level: Level) -> float:
        """Let all begin a level together; returns when, on the monotonic clock."""
        start_s = time.monotonic() + LEAD_S
        for pipe in self._pipes:
            pipe.send(Run(level, start_s))
        return start_s

    def stop(self, grace_s: float) -> None:
        """End the level that runs, and wait this long for what is in flight."""
        for pipe in self._pipes:
            with suppress(OSError):  # it has failed, which `receive` tells
                pipe.send(Stop(grace_s))

    def receive(self, timeout_s: float) -> list[Rows | Ended]:
        """Return what workers have sent, after at most this long.

        Raises:
            WorkerError: One cannot go on.
        """
        ready = multiprocessing.connection.wait(self._pipes, timeout_s)
        return [self._receive(pipe) for pipe in self._pipes if pipe in ready]

    def _receive(self, pipe: Connection) -> Any:
        index = self._pipes.index(pipe)
        try:
            answer = pipe.recv()
        except (EOFError, OSError):
            code = self._processes[index].wait()
            raise WorkerError(f"worker process {index} ended with exit code {code}") from None
        if isinstance(answer, Failed):
            raise WorkerError(answer.text)
        return answer

    def _start(self, job: Job) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "headrace_client.bench.worker", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env=_environment(),
                process_group=0,  # Ctrl-C is for this process, which then stops them
            )
        self._processes.append(process)
        self._pipes.append(Connection(ours.detach()))
        self._pipes[-1].send(job)


def _environment() -> dict[str, str]:
    """Return the workers' environment: they import what this process would."""
    return {
        **KEEP_LARGE_BLOCKS,
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "PYTHONASYNCIODEBUG": "",  # the debug mode costs half the speed
    }
