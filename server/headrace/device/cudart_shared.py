"""Memory of a GPU that another process shares by a handle (CUDA's inter-process communication).

The bindings come as arguments, because one file alone imports them.

Rules
- A handle opens memory for whoever has it, so none is ever put into a text.
- CUDA does not say how much there is behind a handle, the driver does; what it does not say of is
  not opened.
- Memory that is opened twice has one address, and CUDA counts: each opening is closed once.
"""

from __future__ import annotations

import ctypes
from functools import partial
from typing import TYPE_CHECKING, Any

from headrace.device.base import DevicePtr
from headrace.device.cudart_errors import device_error
from headrace.device.cudart_memory import HeldMemory
from headrace.errors import DeviceError

if TYPE_CHECKING:
    from headrace.device.cudart import CudartDevice

HANDLE_BYTES = 64  # CUDA_IPC_HANDLE_SIZE

_WHY = (
    "no memory can be opened by this handle: it must be cudaIpcGetMemHandle's, of memory by "
    "cudaMalloc, in a process of this machine that is alive and is not the server itself"
)


def can_open(rt: Any, index: int) -> bool:
    """Say whether a GPU can open memory of other processes at all.

    CUDA's reference names this attribute for it; a driver that does not know it cannot.
    """
    attribute = rt.cudaDeviceAttr.cudaDevAttrIpcEventSupport
    status, value = rt.cudaDeviceGetAttribute(attribute, index)
    rt.cudaGetLastError()
    return status is rt.cudaError_t.cudaSuccess and bool(value)


class CudartSharedBuffer(HeldMemory):
    """An opening of such memory."""

    def __init__(self, rt: Any, driver: Any, device: CudartDevice, handle: bytes) -> None:
        """Open it and ask how much there is; takes a millisecond or more.

        Raises:
            DeviceError: It cannot be opened, or nobody knows how much there is.
        """
        if len(handle) != HANDLE_BYTES:
            raise DeviceError(
                f"the handle has {len(handle)} bytes, expected the {HANDLE_BYTES} of a "
                "cudaIpcMemHandle_t"
            )
        device.bind_thread()
        status, address = rt.cudaIpcOpenMemHandle(
            _handle(rt, handle), rt.cudaIpcMemLazyEnablePeerAccess
        )
        if status is not rt.cudaError_t.cudaSuccess:
            error = device.fault(status, "opening memory of another process")
            if error.sticky:
                raise error
            raise DeviceError(_WHY, code=error.code, name=error.name)
        closing = "closing memory of another process"
        close = partial(device.release, closing, rt.cudaIpcCloseMemHandle, address)
        try:
            self.size_bytes = _bytes_behind(driver, address)
        except BaseException:
            close()
            raise
        self.ptr = DevicePtr(int(address))
        super().__init__(device, "shared buffer", close)


def _handle(rt: Any, handle: bytes) -> Any:
    """Return CUDA's struct of these bytes; it has a field for them in some releases only."""
    raw = rt.cudaIpcMemHandle_t()
    ctypes.memmove(raw.getPtr(), handle, HANDLE_BYTES)
    return raw


def _bytes_behind(driver: Any, address: int) -> int:
    """Return how many bytes lie from an address to the end of its allocation.

    That may be more than was asked for of cudaMalloc: it cuts small allocations out of blocks, and
    a handle opens the block.
    """
    result, base, size_bytes = driver.cuMemGetAddressRange(address)
    if int(result):
        doing = "asking how much memory another process shares"
        raise device_error(int(result), result.name, "the driver does not tell", doing)
    return int(base) + int(size_bytes) - int(address)
