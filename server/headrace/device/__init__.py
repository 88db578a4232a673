"""Bottom layer: streams, events and memory of one device; `open_device` picks the adapter."""

from __future__ import annotations

import logging

from headrace.device.base import Device
from headrace.errors import ConfigError, DeviceError

__all__ = ["open_device"]

log = logging.getLogger(__name__)


def open_device(kind: str, index: int = 0) -> Device:
    """Open a device; adapters are imported here, so that none is needed on a machine without it.

    Args:
        kind: "cudart" (a GPU), "host" (the CPU), "sim" (a virtual device, for tests), or "auto":
            the GPU where CUDA finds one, else the CPU.
        index: CUDA's number of the GPU; the others only carry it.

    Raises:
        ConfigError: There is no such kind.
        DeviceError: The GPU that was asked for is not there, or CUDA found one that does not work.
    """
    match "cudart" if kind == "auto" and _has_gpu() else kind:
        case "cudart":
            try:
                from headrace.device.cudart import CudartDevice
            except ImportError as error:
                raise DeviceError(
                    f"device cudart needs cuda-bindings, which cannot be imported ({error}): "
                    "install headrace-server[cuda], or choose the device host"
                ) from error
            return CudartDevice.open(index)
        case "host" | "auto":
            from headrace.device.host import HostDevice

            return HostDevice(index)
        case "sim":
            from headrace.device.sim import SimDevice

            return SimDevice(index)
    raise ConfigError(f"device {kind!r}: expected auto, cudart, host or sim")


def _has_gpu() -> bool:
    try:
        from headrace.device.cudart import count_devices
    except ImportError as error:
        log.info("device auto: the host, because cuda-bindings cannot be imported (%s)", error)
        return False
    num_devices, why_none = count_devices()
    if why_none is not None:
        log.info("device auto: the host (%s)", why_none)
    return num_devices > 0
