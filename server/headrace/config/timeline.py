"""Settings of the timeline: what is recorded of requests, and how much of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from headrace.config.network import MIB
from headrace.config.option import option


@dataclass(frozen=True, kw_only=True)
class TimelineSettings:
    """Whether and how requests are recorded for Perfetto."""

    GROUP: ClassVar = "Timeline"

    timeline: Path | None = option(
        None,
        "File to record requests into, for https://ui.perfetto.dev. SIGUSR2 ends the recording and "
        "begins the next, in a file with a number.",
    )
    timeline_at_start: bool = option(
        True, "Record from the start, instead of waiting for the first SIGUSR2."
    )
    timeline_rate: int = option(
        100, "Record every so many-th request; 1 for all of them.", low=1, high=1_000_000_000
    )
    timeline_max_bytes: int = option(
        64 * MIB, "Size at which a recording ends.", low=4096, high=2**40
    )
    timeline_max_s: float = option(
        60.0,
        "Seconds after which a recording ends.",
        flag="timeline-max-secs",
        low=0,
        high=86_400,
    )
