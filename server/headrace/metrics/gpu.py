"""GPU figures under Triton's names, through NVML; the one importer of nvidia-ml-py.

Where the package, the driver or a figure is missing, the metric is missing: nothing is made up.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from typing import Any, Final

from headrace.metrics.machine import Figure

log = logging.getLogger(__name__)

_MILLI: Final = 1000


class GpuProbe:
    """The GPUs that this process may use, by NVML. NVML is opened at the first reading."""

    def __init__(self) -> None:
        self._nvml: Any = None
        self._is_open = False
        self._handles: dict[str, Any] = {}  # by UUID
        self._energy_start_mj: dict[str, int] = {}

    def read(self) -> Iterator[Figure]:
        """Yield every figure that NVML has of every visible GPU."""
        if not self._is_open:
            self._open()
        for uuid, handle in self._handles.items():
            labels = {"gpu_uuid": uuid}
            for name, value in self._figures(uuid, handle):
                yield Figure(name, labels, value)

    def close(self) -> None:
        """Shut NVML down; a second call does nothing, a later reading opens it again."""
        nvml, self._nvml, self._handles, self._is_open = self._nvml, None, {}, False
        if nvml is not None:
            nvml.nvmlShutdown()

    def _open(self) -> None:
        self._is_open = True
        try:
            import pynvml
        except ImportError:
            log.info("no GPU metrics: nvidia-ml-py is not installed (extra [cuda])")
            return
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            log.info("no GPU metrics: %s", error)
            return
        self._nvml = pynvml
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            uuid = pynvml.nvmlDeviceGetUUID(handle)
            if is_visible(index, uuid, os.environ.get("CUDA_VISIBLE_DEVICES")):
                self._handles[uuid] = handle

    def _figures(self, uuid: str, handle: Any) -> Iterator[tuple[str, float]]:
        nvml = self._nvml
        if (rates := self._ask(nvml.nvmlDeviceGetUtilizationRates, handle)) is not None:
            yield "nv_gpu_utilization", rates.gpu / 100
        if (memory := self._ask(nvml.nvmlDeviceGetMemoryInfo, handle)) is not None:
            yield "nv_gpu_memory_total_bytes", memory.total
            yield "nv_gpu_memory_used_bytes", memory.used
        if (power_mw := self._ask(nvml.nvmlDeviceGetPowerUsage, handle)) is not None:
            yield "nv_gpu_power_usage", power_mw / _MILLI
        if (limit_mw := self._ask(nvml.nvmlDeviceGetPowerManagementLimit, handle)) is not None:
            yield "nv_gpu_power_limit", limit_mw / _MILLI
        if (energy_mj := self._ask(nvml.nvmlDeviceGetTotalEnergyConsumption, handle)) is not None:
            start_mj = self._energy_start_mj.setdefault(uuid, energy_mj)
            yield "nv_energy_consumption", (energy_mj - start_mj) / _MILLI

    def _ask(self, question: Callable[[Any], Any], handle: Any) -> Any:
        """Return the answer; None when this GPU has none (virtual GPUs lack several)."""
        try:
            return question(handle)
        except self._nvml.NVMLError:
            return None


def is_visible(index: int, uuid: str, visible: str | None) -> bool:
    """Say whether CUDA_VISIBLE_DEVICES lets this process use a GPU.

    Args:
        index: NVML's, in the order of PCI buses.
        uuid: Such as "GPU-8674351b-…".
        visible: The variable's value; None = not set, every GPU is visible.
    """
    if visible is None:
        return True
    for entry in (entry.strip() for entry in visible.split(",")):
        if entry.isdigit():
            if int(entry) == index:
                return True
        elif entry.startswith("GPU-"):  # CUDA takes any unambiguous prefix
            if uuid.startswith(entry):
                return True
        else:  # CUDA stops at the first entry that names no GPU, such as -1
            return False
    return False
