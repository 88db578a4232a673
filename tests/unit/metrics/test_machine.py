"""Figures of the machine: right where it tells them, absent where it does not."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.metrics import Metrics
from headrace.metrics.exposition import render
from headrace.metrics.gpu import GpuProbe, is_visible
from headrace.metrics.machine import CpuProbe, Figure, MachineCollector

UUID = "GPU-8674351b-fff7-56c3-f545-26313154b8ed"


def figures(probe: CpuProbe) -> dict[str, float]:
    return {figure.name: figure.value for figure in probe.read()}


def write_proc(proc: Path, ticks: str, memory: str = "") -> None:
    (proc / "stat").write_text(f"cpu  {ticks}\ncpu0 {ticks}\n")
    (proc / "meminfo").write_text(memory)


def test_cpu_utilization_is_the_busy_share_since_the_last_reading(tmp_path: Path) -> None:
    """Idle and waiting for I/O are not busy; guest time is not counted twice."""
    write_proc(tmp_path, "100 0 100 700 100 0 0 0 50 0")
    probe = CpuProbe(tmp_path)
    assert "nv_cpu_utilization" not in figures(probe)  # no time has passed
    write_proc(tmp_path, "120 5 110 750 110 2 3 0 60 0")
    assert figures(probe)["nv_cpu_utilization"] == pytest.approx(40 / 100)
    write_proc(tmp_path, "220 5 110 750 110 2 3 0 160 0")
    assert figures(probe)["nv_cpu_utilization"] == 1.0


def test_memory_in_use_is_what_is_not_available(tmp_path: Path) -> None:
    """Caches that can be given up are not counted as used."""
    memory = "MemTotal: 1000 kB\nMemFree: 100 kB\nMemAvailable: 600 kB\nHugePages_Total: 3\n"
    write_proc(tmp_path, "1 0 0 0 0 0 0 0", memory)
    read = figures(CpuProbe(tmp_path))
    assert read["nv_cpu_memory_total_bytes"] == 1000 * 1024
    assert read["nv_cpu_memory_used_bytes"] == 400 * 1024


def test_without_proc_there_are_no_cpu_figures(tmp_path: Path) -> None:
    """A system without /proc shows no figures rather than zeros."""
    assert figures(CpuProbe(tmp_path / "absent")) == {}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc is Linux's")
def test_this_machine_tells_its_memory() -> None:
    """On Linux the total equals what the operating system says by another way."""
    total_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert figures(CpuProbe())["nv_cpu_memory_total_bytes"] == pytest.approx(total_bytes, rel=0.05)


class CountingProbe:
    def __init__(self) -> None:
        self.num_readings = 0
        self.num_closes = 0

    def read(self) -> Iterator[Figure]:
        self.num_readings += 1
        yield Figure("nv_gpu_power_usage", {"gpu_uuid": UUID}, 250.0)
        yield Figure("nv_energy_consumption", {"gpu_uuid": UUID}, float(self.num_readings))

    def close(self) -> None:
        self.num_closes += 1


def test_readings_are_not_taken_more_often_than_the_interval() -> None:
    """Scrapes inside one interval show the same reading; an interval of 0 reads at each scrape."""
    slow, fast = CountingProbe(), CountingProbe()
    for probe, interval_s in ((slow, 3600.0), (fast, 0.0)):
        collector = MachineCollector([probe], interval_s)
        for _ in range(3):
            assert [metric.name for metric in collector.collect()] == [
                "nv_gpu_power_usage",
                "nv_energy_consumption",
            ]
    assert (slow.num_readings, fast.num_readings) == (1, 3)


def test_figures_are_exposed_while_open_and_gone_after_close() -> None:
    """`open_machine` adds the CPU's figures to /metrics; `close` takes them out, even twice."""
    metrics = Metrics()
    metrics.open_machine(cpu=True, gpu=True, interval_s=0.0)
    assert b"\nnv_cpu_memory_total_bytes " in render(metrics.registry)[0]
    metrics.open_machine(cpu=True, gpu=False, interval_s=0.0)
    assert b"\nnv_cpu_memory_total_bytes " in render(metrics.registry)[0]
    metrics.close()
    metrics.close()
    assert b"nv_cpu" not in render(metrics.registry)[0]


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="this machine has a GPU")
def test_without_a_gpu_there_are_no_gpu_figures() -> None:
    """No package or no driver: nothing is shown, nothing is raised, closing is harmless."""
    probe = GpuProbe()
    assert list(probe.read()) == []
    assert list(probe.read()) == []
    probe.close()
    probe.close()


@pytest.mark.parametrize(
    ("index", "visible", "expected"),
    [
        (0, None, True),
        (0, "", False),
        (0, "0", True),
        (1, "0", False),
        (1, "0, 1", True),
        (0, "-1", False),
        (1, "-1,1", False),
        (0, UUID[:12], True),
        (0, UUID, True),
        (0, "GPU-1", False),
        (1, "GPU-1,1", True),
    ],
)
def test_only_gpus_that_the_process_may_use_are_shown(
    index: int, visible: str | None, expected: bool
) -> None:
    """CUDA_VISIBLE_DEVICES is read as CUDA reads it: indices, UUID prefixes, an end at -1."""
    assert is_visible(index, UUID, visible) is expected
