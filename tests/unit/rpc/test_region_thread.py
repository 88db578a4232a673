"""The thread that opens and closes regions: in order, for whoever waits, and until the end."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from headrace.client_shm import ClientShm
from headrace.config import ServerConfig
from headrace.device.base import DevicePtr
from headrace.metrics import Metrics
from headrace.regions.part import RegionPart
from headrace.regions.table import RegionTable
from headrace_proto.v1 import inference_pb2 as pb

SIZE = 3000


class Slow:
    """A device whose memory is closed, and opened, when it is told to."""

    is_unified = False
    index = 0
    opens_shared = True

    def __init__(self) -> None:
        self.open: set[bytes] = set()
        self.has_begun, self.may_go_on = threading.Event(), threading.Event()

    def wait(self) -> None:
        self.has_begun.set()
        assert self.may_go_on.wait(10)

    def open_shared(self, handle: bytes) -> SlowBuffer:
        if handle.startswith(b"slow"):
            self.wait()
        self.open.add(handle)
        return SlowBuffer(self, handle)


class SlowBuffer:
    ptr = DevicePtr(0)
    size_bytes = SIZE

    def __init__(self, device: Slow, handle: bytes) -> None:
        self._device, self._handle = device, handle

    def close(self) -> None:
        self._device.wait()
        self._device.open.discard(self._handle)


def shm_on(device: Any) -> ClientShm:
    """What a server with the flag offers."""
    config = ServerConfig(allow_client_shm=True)
    return ClientShm(config, Metrics(), device, clock=lambda: 0.0)


def registered_on(device: Any) -> tuple[ClientShm, RegionTable]:
    """What is offered on a device, with a region `r`."""
    shm = shm_on(device)
    register = pb.CudaSharedMemoryRegisterRequest(name="r", raw_handle=b"x", byte_size=8)
    asyncio.run(shm.methods["CudaSharedMemoryRegister"](register))
    assert shm.table is not None
    return shm, shm.table


@pytest.mark.parametrize("handle", [b"x", b"slow"], ids=["closing", "opening"])
@pytest.mark.parametrize("is_cancelled", [False, True])
def test_nothing_is_open_once_unregistering_is_answered(handle: bytes, is_cancelled: bool) -> None:
    """Also when another call closes it, or opens it, whose caller has perhaps left."""
    device: Any = Slow()
    shm = shm_on(device)
    call = shm.methods
    unregister = pb.CudaSharedMemoryUnregisterRequest(name="r")
    register = pb.CudaSharedMemoryRegisterRequest(name="r", raw_handle=handle, byte_size=8)

    async def run() -> None:
        other = asyncio.create_task(call["CudaSharedMemoryRegister"](register))
        if handle == b"x":
            await other
            other = asyncio.create_task(call["CudaSharedMemoryUnregister"](unregister))
        await asyncio.to_thread(device.has_begun.wait, 10)
        if is_cancelled:
            other.cancel()
        own = asyncio.create_task(call["CudaSharedMemoryUnregister"](unregister))
        is_done, _ = await asyncio.wait({own}, timeout=0.1)  # it has had the time
        assert not is_done
        device.may_go_on.set()
        await own
        assert device.open == set()
        await asyncio.gather(other, return_exceptions=True)

    asyncio.run(run())
    shm.close()


def test_what_was_in_use_is_closed_by_the_thread_after_its_last_use() -> None:
    """Without another call, and not before."""
    device: Any = Slow()
    shm, table = registered_on(device)
    used = table.hold([RegionPart("r", 0, 1)], 0)
    unregister = shm.methods["CudaSharedMemoryUnregister"]
    asyncio.run(unregister(pb.CudaSharedMemoryUnregisterRequest()))
    assert not device.has_begun.is_set()
    table.release(used)
    assert device.has_begun.wait(10)
    assert device.open
    device.may_go_on.set()
    shm.close()
    assert device.open == set()


def test_what_is_in_use_at_the_end_is_closed_by_whoever_ends_it() -> None:
    """There is no thread for it any more."""
    device: Any = Slow()
    device.may_go_on.set()
    shm, table = registered_on(device)
    used = table.hold([RegionPart("r", 0, 1)], 0)
    shm.close()
    assert device.open
    table.release(used)
    assert (device.open, table.num_regions) == (set(), 0)


def test_what_is_being_opened_at_the_end_is_closed() -> None:
    """The end waits for the thread, and then forgets every region."""
    device: Any = Slow()
    shm = shm_on(device)
    register = pb.CudaSharedMemoryRegisterRequest(name="r", raw_handle=b"slow", byte_size=8)

    async def run() -> None:
        opening = asyncio.create_task(shm.methods["CudaSharedMemoryRegister"](register))
        await asyncio.to_thread(device.has_begun.wait, 10)
        ending = asyncio.create_task(asyncio.to_thread(shm.close))
        await asyncio.sleep(0)
        device.may_go_on.set()
        await asyncio.gather(opening, ending)

    asyncio.run(run())
    assert device.open == set()
