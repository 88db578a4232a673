"""The figures of /metrics with their labels, and waiting until they are as they should be."""

from __future__ import annotations

import urllib.request
from collections.abc import Callable
from time import monotonic
from typing import Self

from prometheus_client.parser import text_string_to_metric_families

WAIT_S = 15.0


class Scrape:
    """One reading of a metrics endpoint ("host:port")."""

    def __init__(self, address: str) -> None:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as reply:
            text = reply.read().decode()
        self.families = {family.name: family for family in text_string_to_metric_families(text)}
        self._samples = [
            (sample.name, sample.labels, sample.value)
            for family in self.families.values()
            for sample in family.samples
        ]

    def __call__(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples that have these labels; counters by either name."""
        return sum(
            value
            for found, has, value in self._samples
            if found in (name, f"{name}_total") and labels.items() <= has.items()
        )

    def labels(self, name: str) -> set[tuple[str, ...]]:
        """The label names that a metric's samples have."""
        return {tuple(sorted(has)) for found, has, _ in self._samples if found.startswith(name)}

    @classmethod
    def when(cls, address: str, is_so: Callable[[Self], bool], timeout_s: float = WAIT_S) -> Self:
        """The first reading that is as it should be; fails when none comes in time."""
        give_up_at = monotonic() + timeout_s
        while not is_so(reading := cls(address)):
            assert monotonic() < give_up_at, f"not in {timeout_s} s: {sorted(reading.shown())}"
        return reading

    def shown(self) -> list[str]:
        """What is not zero, for messages."""
        return [f"{name}{has}={value}" for name, has, value in self._samples if value]


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
