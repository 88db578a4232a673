"""Opening memory of other processes through the real binding's types, and a driver in our hand.

Skipped where cuda-bindings is not installed. With a GPU: tests/gpu/test_cuda_shared_memory.py.
"""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.device.cudart_shared import HANDLE_BYTES, CudartSharedBuffer, can_open
from headrace.device.ledger import Ledger
from headrace.errors import DeviceError

rt: Any = pytest.importorskip("cuda.bindings.runtime", reason="cuda-bindings is not installed")
driver: Any = pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings is not installed")

SECRET = bytes(range(100, 164))
BASE, ADDRESS, END = 1 << 40, (1 << 40) + 512, (1 << 40) + 4096


class Machine:
    """The two bindings on a machine with a GPU: what is called, and how it is answered."""

    def __init__(self) -> None:
        self.status = rt.cudaError_t.cudaSuccess
        self.result = driver.CUresult.CUDA_SUCCESS
        self.seen: list[bytes] = []
        self.num_open = 0
        self.num_cleared = 0
        self.is_bound = False  # as a thread that has used CUDA never
        self.is_dead = False
        self.ledger = Ledger()
        names = ("cudaError_t", "cudaIpcMemHandle_t", "cudaIpcMemLazyEnablePeerAccess")
        self.rt = SimpleNamespace(
            **{name: getattr(rt, name) for name in (*names, "cudaDeviceAttr")},
            cudaIpcOpenMemHandle=self._open,
            cudaIpcCloseMemHandle=self._close,
            cudaGetLastError=self._last_error,
            cudaDeviceGetAttribute=lambda *_: (self.status, 1),
        )
        self.driver = SimpleNamespace(cuMemGetAddressRange=self._range)

    def open(self, handle: bytes) -> CudartSharedBuffer:
        return CudartSharedBuffer(self.rt, self.driver, self, handle)  # type: ignore[arg-type]

    def bind_thread(self) -> None:
        if self.is_dead:
            raise DeviceError("dead", sticky=True)
        self.is_bound = True

    def fault(self, status: Any, doing: str) -> DeviceError:
        self.num_cleared += 1
        return DeviceError(doing, code=int(status), name=status.name, sticky=int(status) == 719)

    def release(self, _: str, function: Any, *args: Any) -> None:
        assert function(*args)[0] is rt.cudaError_t.cudaSuccess

    def _open(self, handle: Any, flags: int) -> tuple[Any, int | None]:
        assert self.is_bound
        assert flags == rt.cudaIpcMemLazyEnablePeerAccess
        self.seen.append(ctypes.string_at(handle.getPtr(), HANDLE_BYTES))
        if self.status is not rt.cudaError_t.cudaSuccess:
            return self.status, None
        self.num_open += 1
        return self.status, ADDRESS

    def _close(self, address: int) -> tuple[Any]:
        assert address == ADDRESS
        assert self.is_bound or self.is_dead
        self.num_open -= 1
        return (rt.cudaError_t.cudaSuccess,)

    def _range(self, address: int) -> tuple[Any, Any, int]:
        assert address == ADDRESS
        return self.result, driver.CUdeviceptr(BASE), END - BASE

    def _last_error(self) -> tuple[Any]:
        self.num_cleared += 1
        return (rt.cudaError_t.cudaSuccess,)


def test_a_handle_is_the_struct_of_its_bytes() -> None:
    """As many as CUDA's has; what it opens is known up to the end of the allocation."""
    assert len(bytes(64)) == HANDLE_BYTES
    machine = Machine()
    buffer = machine.open(SECRET)
    assert machine.seen == [SECRET]
    assert (buffer.ptr, buffer.size_bytes) == (ADDRESS, END - ADDRESS)
    assert machine.ledger.names() == ["shared buffer 1"]
    buffer.close()
    buffer.close()
    assert (machine.num_open, machine.ledger.names()) == (0, [])


def test_each_opening_is_closed_once() -> None:
    """CUDA counts those of one handle."""
    machine = Machine()
    first, second = machine.open(SECRET), machine.open(SECRET)
    first.close()
    first.close()
    assert machine.num_open == 1
    second.close()
    assert machine.num_open == 0


@pytest.mark.parametrize("is_dead", [False, True])
def test_closed_by_another_thread(is_dead: bool) -> None:
    """Which has to choose the device first; a dead one cannot be chosen, and holds nothing up."""
    machine = Machine()
    buffer = machine.open(SECRET)
    machine.is_bound, machine.is_dead = False, is_dead
    buffer.close()
    assert (machine.num_open, machine.is_bound, machine.ledger.names()) == (0, not is_dead, [])


@pytest.mark.parametrize("size", [0, 1, 63, 65, 1 << 20])
def test_a_handle_has_its_length(size: int) -> None:
    """Nothing is asked of CUDA else; no byte of it is in the text."""
    machine = Machine()
    with pytest.raises(DeviceError, match=f"the handle has {size} bytes, expected the 64"):
        machine.open(b"s" * size)
    assert machine.seen == []


@pytest.mark.parametrize(
    "name",
    [
        "cudaErrorInvalidValue",
        "cudaErrorDeviceUninitialized",
        "cudaErrorMapBufferObjectFailed",
        "cudaErrorPeerAccessUnsupported",
        "cudaErrorInvalidResourceHandle",
        "cudaErrorTooManyPeers",
        "cudaErrorNotSupported",
    ],
)
def test_what_cannot_be_opened_is_no_fault_of_the_device(name: str) -> None:
    """Whatever CUDA calls it; the text says what may be wrong, and the last error is cleared."""
    machine = Machine()
    machine.status = getattr(rt.cudaError_t, name)
    with pytest.raises(DeviceError, match=f"that is alive .*{name}") as caught:
        machine.open(SECRET)
    assert not caught.value.sticky
    assert machine.num_cleared == 1
    assert machine.ledger.names() == []


def test_a_dead_device_says_so() -> None:
    """That is not about the handle."""
    machine = Machine()
    machine.status = rt.cudaError_t.cudaErrorLaunchFailure
    with pytest.raises(DeviceError, match="opening memory of another process") as caught:
        machine.open(SECRET)
    assert caught.value.sticky


def test_memory_of_an_unknown_size_is_closed_again() -> None:
    """Nobody could hold a copy to its end."""
    machine = Machine()
    machine.result = driver.CUresult.CUDA_ERROR_NOT_FOUND
    with pytest.raises(DeviceError, match="CUDA_ERROR_NOT_FOUND 500"):
        machine.open(SECRET)
    assert (machine.num_open, machine.ledger.names()) == (0, [])


def test_a_device_that_cannot_says_so() -> None:
    """As does a driver that does not know the question; it leaves no error behind."""
    machine = Machine()
    assert can_open(machine.rt, 0)
    machine.status = rt.cudaError_t.cudaErrorInvalidValue
    assert not can_open(machine.rt, 0)
    assert machine.num_cleared == 2


def test_the_driver_has_the_call() -> None:
    """Of this name and this argument."""
    assert "cuMemGetAddressRange(dptr)" in (driver.cuMemGetAddressRange.__doc__ or "")
