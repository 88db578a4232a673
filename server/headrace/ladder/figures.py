"""What is known of a rung after it was measured."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.ladder.limits import Limit, Shares, limit_of
from headrace.ladder.rungs import Rung


@dataclass(frozen=True, slots=True)
class Figures:
    """Measured over `seconds_s`; shares are 0 to 1, and None stands for what nothing measures here.

    Attributes:
        rows_per_s: Rows of requests that ended.
        p50_s: Median latency, from staging to the end of the request; p99_s alike.
        enqueue_s: Mean time that the host spent in enqueueing one request.
        shares: How busy host, copy engines and compute were.
        hidden_share: The part of copy time that ran while another slot computed.
        nvml_share: The GPU's utilization as NVML tells it.
    """

    seconds_s: float
    num_requests: int
    rows_per_s: float
    p50_s: float
    p99_s: float
    enqueue_s: float
    shares: Shares
    hidden_share: float | None = None
    nvml_share: float | None = None

    @property
    def limit(self) -> Limit:
        """What limits the rung."""
        return limit_of(self.shares)


@dataclass(frozen=True, slots=True)
class Result:
    """A rung with its figures, or with the reason why it has none."""

    rung: Rung
    figures: Figures | None
    error: str = ""


def paces(results: list[Result]) -> list[tuple[Rung, float]]:
    """Return the rungs that have figures, with their rows a second."""
    return [(each.rung, each.figures.rows_per_s) for each in results if each.figures is not None]
