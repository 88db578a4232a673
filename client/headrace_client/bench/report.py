"""What is reported of a run: its circumstances and its levels."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version

import grpc

from headrace_client.bench.conduct import Outcome
from headrace_client.bench.machine import num_cores
from headrace_client.bench.worker import event_loop_name


@dataclass(frozen=True)
class Subject:
    """What was sent where.

    Attributes:
        url: The server.
        server: Its name and version, "" when it does not say.
        model: The model.
        model_version: As asked for, "" for the server's choice.
        inputs: Datatype and shape of each.
        rows: In a request.
        request_bytes: Length of a request.
        deadline_ms: Of a request; None: as good as none.
        num_sources: Who sends.
        flood: Which source sends how many times as much, such as "0:20"; "" for none.
        seed: Of all that is random.
        num_processes: That send.
        num_connections: Over all of them.
    """

    url: str
    server: str
    model: str
    model_version: str
    inputs: Sequence[str]
    rows: int
    request_bytes: int
    deadline_ms: float | None
    num_sources: int
    flood: str
    seed: int
    num_processes: int
    num_connections: int


@dataclass(frozen=True)
class Circumstances:
    """When, where and with what it was measured."""

    started: str
    client: str
    python: str
    grpcio: str
    event_loop: str
    machine: str
    num_cores: int


@dataclass(frozen=True)
class Report:
    """A whole run."""

    subject: Subject
    circumstances: Circumstances
    levels: Sequence[Outcome]

    @property
    def is_failure(self) -> bool:
        """Whether no request was answered."""
        return not any(level.seen.num_ok for level in self.levels)


def circumstances() -> Circumstances:
    """Describe this process and its machine, now."""
    return Circumstances(
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        client=_own_version(),
        python=platform.python_version(),
        grpcio=grpc.__version__,
        event_loop=event_loop_name(),
        machine=f"{platform.system()} {platform.machine()}",
        num_cores=num_cores(),
    )


def _own_version() -> str:
    try:
        return version("headrace-client")
    except PackageNotFoundError:  # run from its sources
        return "unknown"
