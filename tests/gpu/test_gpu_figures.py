"""The GPU's figures among the metrics are those that the driver's own tool prints."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from headrace.metrics import Metrics
from headrace.metrics.exposition import render
from headrace.metrics.gpu import GpuProbe

pytestmark = pytest.mark.gpu


@pytest.fixture
def probe() -> Iterator[GpuProbe]:
    pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    probe = GpuProbe()
    if not list(probe.read()):
        pytest.skip("NVML finds no GPU")
    yield probe
    probe.close()


def ask_nvidia_smi(*fields: str) -> list[list[str]]:
    """Return the fields of each GPU, in megabytes, watts and percent."""
    command = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [line.split(", ") for line in output.splitlines()]


def test_figures_equal_those_of_nvidia_smi(probe: GpuProbe) -> None:
    """Bytes, watts and shares: every figure has the unit of its name."""
    figures = {(figure.name, figure.labels["gpu_uuid"]): figure.value for figure in probe.read()}
    told = ask_nvidia_smi("uuid", "memory.total", "power.limit", "power.draw")
    assert {uuid for _, uuid in figures} <= {row[0] for row in told}
    for uuid, total_mib, limit_w, draw_w in told:
        if ("nv_gpu_memory_total_bytes", uuid) not in figures:
            continue  # hidden from this process
        total_bytes = figures["nv_gpu_memory_total_bytes", uuid]
        assert total_bytes == pytest.approx(float(total_mib) * 2**20, rel=0.01)
        assert 0 <= figures["nv_gpu_memory_used_bytes", uuid] <= total_bytes
        assert figures["nv_gpu_power_limit", uuid] == pytest.approx(float(limit_w), rel=0.01)
        assert figures["nv_gpu_power_usage", uuid] == pytest.approx(float(draw_w), rel=0.5)
        assert 0.0 <= figures["nv_gpu_utilization", uuid] <= 1.0


def test_energy_counts_from_the_first_reading(probe: GpuProbe) -> None:
    """The counter starts near zero and rises with what the GPU draws, in joules."""
    figures = [figure for figure in probe.read() if figure.name == "nv_energy_consumption"]
    if not figures:
        pytest.skip("this GPU does not count its energy")
    power_w = sum(f.value for f in probe.read() if f.name == "nv_gpu_power_usage")
    assert 0 <= sum(figure.value for figure in figures) < 60 * max(power_w, 1)


def test_the_gpu_is_among_the_metrics(probe: GpuProbe) -> None:
    """A scrape shows the figures with the label that Triton's dashboards ask for."""
    metrics = Metrics()
    metrics.open_machine(cpu=False, gpu=True, interval_s=0.0)
    text = render(metrics.registry)[0].decode()
    metrics.close()
    assert 'nv_gpu_utilization{gpu_uuid="GPU-' in text
    assert "# TYPE nv_energy_consumption counter" in text


def test_hidden_gpus_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """With CUDA_VISIBLE_DEVICES empty there is no figure of any GPU."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    probe = GpuProbe()
    assert list(probe.read()) == []
    probe.close()
