"""A client of `load.shm`: frames in messages, in shared memory, or in memory of the GPU.

    python -m load.shm_frames ADDRESS WAY MODEL CALLERS SECONDS

Callers in a closed loop on four connections. In messages they send the same bytes again and again;
else each writes its frame into its region before each call, as a camera or a decoder would: by the
host, or by a copy within the GPU. Prints calls, failures, seconds and CPU seconds as JSON.
"""

from __future__ import annotations

import asyncio
import json
import mmap
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, Protocol

import grpc
import grpc.aio
import numpy as np
import uvloop

from helpers.cuda_checked import checked
from helpers.cuda_owner import Memory as DeviceMemory
from helpers.messages import infer, tensor
from helpers.raw_http2 import INFER
from helpers.rpc_client import RpcClient
from helpers.shm_client import Memory, part, register
from load.grpc_client import OPTIONS, Load
from load.models import CATALOGUE
from load.work import request

CONNECTIONS = 4
CALL_S = 60.0
BLOCK = 2 << 20  # the driver's; less is shared with what lies beside


class Region(Protocol):
    """Memory of one caller: its frame, and the answer behind it."""

    name: str

    def register(self, client: RpcClient) -> None:
        """Tell the server."""

    def put_frame(self) -> None:
        """Write the frame; it is there when this returns."""

    def answer(self) -> bytes:
        """Return what stands behind the frame."""


class HostRegion:
    """System shared memory."""

    def __init__(self, frame: bytes, stack: ExitStack) -> None:
        self.size_bytes = 2 * len(frame)
        self._frame = frame
        self._memory = stack.enter_context(Memory(self.size_bytes))
        self._mapped = mmap.mmap(self._memory.fd, self.size_bytes)
        self.name = self._memory.key

    def register(self, client: RpcClient) -> None:
        """Tell the server."""
        register(client, self.name, self._memory.key, self.size_bytes)

    def put_frame(self) -> None:
        """Write the frame."""
        self._mapped[: len(self._frame)] = self._frame

    def answer(self) -> bytes:
        """Return what stands behind the frame."""
        return self._mapped[len(self._frame) :]


class DeviceRegion:
    """cudaMalloc's memory on GPU 0; the frame comes from other memory there."""

    def __init__(self, frame: bytes, _: ExitStack) -> None:
        from cuda.bindings import runtime as rt

        self.name = uuid.uuid4().hex
        self._rt, self._size = rt, len(frame)
        self._stream = checked(rt.cudaStreamCreate())
        self._memory = DeviceMemory(rt, -(-2 * self._size // BLOCK) * BLOCK)
        self._camera = DeviceMemory(rt, self._size)
        checked(rt.cudaMemset(self._memory.address, 0, 2 * self._size))
        data, to_device = np.frombuffer(frame, np.uint8), rt.cudaMemcpyKind.cudaMemcpyHostToDevice
        checked(rt.cudaMemcpy(self._camera.address, data.ctypes.data, self._size, to_device))

    def register(self, client: RpcClient) -> None:
        """Tell the server."""
        fields = {"raw_handle": self._memory.handle, "device_id": 0, "byte_size": 2 * self._size}
        client.ask("CudaSharedMemoryRegister", name=self.name, **fields)

    def put_frame(self) -> None:
        """Copy the frame within the GPU, and wait: the server waits for no stream of ours."""
        within = self._rt.cudaMemcpyKind.cudaMemcpyDeviceToDevice
        copy = (self._memory.address, self._camera.address, self._size, within, self._stream)
        checked(self._rt.cudaMemcpyAsync(*copy))
        checked(self._rt.cudaStreamSynchronize(self._stream))

    def answer(self) -> bytes:
        """Return what stands behind the frame."""
        data = np.zeros(self._size, np.uint8)
        to_host = self._rt.cudaMemcpyKind.cudaMemcpyDeviceToHost
        behind = self._memory.address + self._size
        checked(self._rt.cudaMemcpy(data.ctypes.data, behind, self._size, to_host))
        return data.tobytes()


REGIONS: dict[str, Callable[[bytes, ExitStack], Region]] = {
    "shared memory": HostRegion,
    "CUDA shared memory": DeviceRegion,
}
WAYS = ("message", *REGIONS)


class RegionLoad(Load):
    """Callers that each have a region."""

    def __init__(self, model: str, regions: Sequence[Region]) -> None:
        super().__init__(b"", 0)
        self.regions = regions
        x = CATALOGUE[model].sample()
        self.frame = x.tobytes()
        size = len(self.frame)
        self.messages = [
            infer(
                model,
                [tensor("x", CATALOGUE[model].datatype, x.shape, parameters=part(name, size))],
                outputs=["y"],
                output_parameters=part(name, size, size),
            )
            for name in (region.name for region in regions)
        ]

    async def region_caller(self, call: Any, place: int) -> None:
        """Write the frame, call, again; in the end the answer must be the frame."""
        region, message = self.regions[place], self.messages[place]
        while not self.is_over:
            started = time.perf_counter()
            region.put_frame()
            await call(message, timeout=CALL_S)
            self.latencies_s.append(time.perf_counter() - started)
        if region.answer() != self.frame:
            self.failed += 1


async def main(address: str, way: str, model: str, callers: int, seconds: float) -> None:
    """One measurement."""
    with ExitStack() as stack:
        channels = [grpc.aio.insecure_channel(address, options=OPTIONS) for _ in range(CONNECTIONS)]
        calls: list[Any] = [channel.unary_unary(INFER) for channel in channels]
        if way == "message":
            message = request(model)
            load = Load(message, len(await calls[0](message, timeout=CALL_S)))
            work = [load.caller(calls[place % CONNECTIONS]) for place in range(callers)]
        else:
            frame = CATALOGUE[model].sample().tobytes()
            regions = [REGIONS[way](frame, stack) for _ in range(callers)]
            client = stack.enter_context(RpcClient(address))
            stack.callback(client.ask, "CudaSharedMemoryUnregister")  # nobody sees that we end
            for region in regions:
                region.register(client)
            load = shm = RegionLoad(model, regions)
            work = [shm.region_caller(calls[at % CONNECTIONS], at) for at in range(callers)]
        started, cpu_s = time.perf_counter(), time.process_time()
        tasks = [asyncio.create_task(each) for each in work]
        await asyncio.sleep(seconds)
        load.is_over = True
        await asyncio.gather(*tasks)
        took_s, cpu_s = time.perf_counter() - started, time.process_time() - cpu_s
        for channel in channels:
            await channel.close()
    figures = {"calls": len(load.latencies_s), "failed": load.failed, "s": took_s, "cpu_s": cpu_s}
    print(json.dumps(figures))


if __name__ == "__main__":
    at, way_of, name, num_callers, duration = sys.argv[1:]
    uvloop.run(main(at, way_of, name, int(num_callers), float(duration)))
