"""What a run consists of: levels of load, and the job that every worker is told once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace_client.bench.schedule import Schedule
from headrace_client.settings import Settings


@dataclass(frozen=True)
class ClosedLoop:
    """So many callers; each sends its next request when it has its answer.

    Args:
        concurrency: Callers, over all workers.
        turns: Sources of successive requests, over and over.
    """

    concurrency: int
    turns: Sequence[int] = (0,)


@dataclass(frozen=True)
class OpenLoop:
    """Requests leave when they are due, whatever became of those before.

    Args:
        schedule: When they are due.
        max_in_flight: What is due while so many are in flight, over all workers, is dropped.
    """

    schedule: Schedule
    max_in_flight: int


@dataclass(frozen=True)
class Level:
    """One load for some time.

    Args:
        load: How requests come.
        warm_up_s: Load without measuring, before.
        duration_s: How long is measured; None: until `num_requests`.
        num_requests: How many are measured; None: as many as there are.
    """

    load: ClosedLoop | OpenLoop
    warm_up_s: float
    duration_s: float | None
    num_requests: int | None


@dataclass(frozen=True)
class Messages:
    """The requests, serialized.

    Args:
        base: All but what differs between sources.
        tails: What each source puts behind it: protobuf reads two messages that follow each other
            as one.
    """

    base: bytes
    tails: Sequence[bytes] = (b"",)

    def __post_init__(self) -> None:
        assert self.tails, "there is at least one source"


@dataclass(frozen=True)
class Job:
    """What every worker does alike, and which of them it is.

    Args:
        settings: Where the server is and how to reach it.
        messages: What is sent.
        timeout_s: The deadline of each request; None for none.
        num_connections: Of this worker.
        index: Its number.
        num_workers: How many there are.
    """

    settings: Settings
    messages: Messages
    timeout_s: float | None
    num_connections: int
    index: int
    num_workers: int

    def share_of(self, number: int) -> int:
        """Return this worker's part of a number of things; the parts add up to it."""
        return number // self.num_workers + (self.index < number % self.num_workers)


@dataclass(frozen=True)
class Run:
    """Tells a worker to do a level; `start_s` is on the monotonic clock, which all share."""

    level: Level
    start_s: float


@dataclass(frozen=True)
class Stop:
    """Tells a worker to end its level now, and to wait this long for what is in flight."""

    grace_s: float


@dataclass(frozen=True)
class Ready:
    """Tells that a worker is connected."""


@dataclass(frozen=True)
class Failed:
    """Tells why a worker cannot go on."""

    text: str


@dataclass(frozen=True)
class Ended:
    """Tells that a level is over, and what it cost from the warm-up's end to the last sending.

    Attributes:
        measured_s: How long that was; 0 when it ended before.
        loop_cpu_s: Time on the CPU of the thread that runs the event loop: the limit is all of it.
        process_cpu_s: The same of all threads.
    """

    measured_s: float
    loop_cpu_s: float
    process_cpu_s: float

    def __sub__(self, before: Ended) -> Ended:
        """Return what was added since `before`."""
        return Ended(
            self.measured_s - before.measured_s,
            self.loop_cpu_s - before.loop_cpu_s,
            self.process_cpu_s - before.process_cpu_s,
        )
