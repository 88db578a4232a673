"""The figures of /metrics with their labels, and waiting until they are as they should be."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Callable
from time import monotonic
from typing import Self

WAIT_S = 30.0
_SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class Scrape:
    """One reading of a metrics endpoint ("host:port"); `samples` are (name, labels, value).

    The library's parser takes a third of a second for some thousand lines, longer than much of what
    tests wait for; that it can read the page is asked elsewhere.
    """

    def __init__(self, address: str) -> None:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as reply:
            text = reply.read().decode()
        self.samples: list[tuple[str, dict[str, str], float]] = [
            (name, dict(_LABEL.findall(labels)), float(value))
            for name, labels, value in _SAMPLE.findall(text)
        ]

    def __call__(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples that have these labels; counters by either name."""
        return sum(
            value
            for found, has, value in self.samples
            if found in (name, f"{name}_total") and labels.items() <= has.items()
        )

    def labels(self, name: str) -> set[tuple[str, ...]]:
        """The label names that a metric's samples have."""
        return {tuple(sorted(has)) for found, has, _ in self.samples if found.startswith(name)}

    @classmethod
    def when(cls, address: str, is_so: Callable[[Self], bool], timeout_s: float = WAIT_S) -> Self:
        """The first reading that is as it should be; fails when none comes in time."""
        give_up_at = monotonic() + timeout_s
        while not is_so(reading := cls(address)):
            assert monotonic() < give_up_at, f"not in {timeout_s} s: {sorted(reading.shown())}"
        return reading

    def shown(self) -> list[str]:
        """What is not zero, for messages."""
        return [f"{name}{has}={value}" for name, has, value in self.samples if value]


def num_inside(reading: Scrape) -> float:
    """How many requests are in the core: in flight, or behind those that are."""
    return reading("headrace_lanes_in_flight") + reading("headrace_queue_length")


def is_at_rest(reading: Scrape) -> bool:
    """Whether nothing is left of any request."""
    gauges = (
        "headrace_lanes_in_flight",
        "headrace_slots_busy",
        "headrace_queue_length",
        "headrace_blocks_leased",
        "headrace_blocks_leased_bytes",
        "nv_inference_pending_request_count",
    )
    return all(reading(gauge) == 0 for gauge in gauges)
