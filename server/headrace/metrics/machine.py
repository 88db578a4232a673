"""Figures of the machine beside those of the models: read at a scrape, at most once an interval."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from time import monotonic
from typing import Final, NamedTuple, Protocol

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from headrace.metrics.catalogue import family

_PROC: Final = Path("/proc")
_KIB: Final = 1024


class Figure(NamedTuple):
    """One value of one metric of the catalogue."""

    name: str
    labels: dict[str, str]
    value: float


class Probe(Protocol):
    """Reads figures; what the machine does not have is left out."""

    def read(self) -> Iterable[Figure]:
        """Return the figures of this moment; never raises."""

    def close(self) -> None:
        """Give back what reading needs; a second call does nothing."""


class MachineCollector(Collector):
    """Shows the figures of probes, read anew when the last reading is older than `interval_s`."""

    def __init__(self, probes: Iterable[Probe], interval_s: float) -> None:
        self._probes = tuple(probes)
        self._interval_s = interval_s
        self._lock = threading.Lock()
        self._figures: list[Figure] = []
        self._read_at = float("-inf")  # monotonic seconds

    def collect(self) -> Iterator[Metric]:
        """Yield one family for each name that any probe knows."""
        with self._lock:
            now = monotonic()
            if now - self._read_at >= self._interval_s:
                self._figures = [figure for probe in self._probes for figure in probe.read()]
                self._read_at = now
            figures = self._figures
        families: dict[str, Metric] = {}
        for figure in figures:
            metric = families.setdefault(figure.name, family(figure.name))
            metric.add_sample(figure.name, figure.labels, figure.value)
        yield from families.values()

    def close(self) -> None:
        """Close the probes; a second call does nothing."""
        for probe in self._probes:
            probe.close()


class CpuProbe:
    """CPU and memory of the machine, as Linux tells them in /proc; absent elsewhere."""

    def __init__(self, proc: Path = _PROC) -> None:
        self._proc = proc
        self._busy, self._total = self._read_ticks()

    def read(self) -> Iterator[Figure]:
        """Yield memory, and the utilization since the reading before."""
        busy, total = self._read_ticks()
        if total > self._total:
            share = (busy - self._busy) / (total - self._total)
            yield Figure("nv_cpu_utilization", {}, min(1.0, max(0.0, share)))
        self._busy, self._total = busy, total
        memory = self._read_memory()
        if {"MemTotal", "MemAvailable"} <= memory.keys():
            total_bytes = memory["MemTotal"]
            yield Figure("nv_cpu_memory_total_bytes", {}, total_bytes)
            yield Figure("nv_cpu_memory_used_bytes", {}, total_bytes - memory["MemAvailable"])

    def close(self) -> None:
        """Nothing is held."""

    def _read_ticks(self) -> tuple[int, int]:
        """Return (busy, all) ticks of all cores since boot; (0, 0) where nothing tells."""
        try:
            line = (self._proc / "stat").read_text().partition("\n")[0]
        except OSError:
            return 0, 0
        # user nice system idle iowait irq softirq steal; guest times after them are in user already
        ticks = [int(field) for field in line.split()[1:9]]
        return sum(ticks) - sum(ticks[3:5]), sum(ticks)

    def _read_memory(self) -> dict[str, int]:
        """Return /proc/meminfo in bytes; empty where there is none."""
        try:
            lines = (self._proc / "meminfo").read_text().splitlines()
        except OSError:
            return {}
        fields = (line.split() for line in lines)
        return {field[0].rstrip(":"): int(field[1]) * _KIB for field in fields if len(field) == 3}
