"""Registering, listing and forgetting regions of shared memory, by Triton's six RPCs.

Rules
- Everybody who may call may unregister every region, as in Triton: load generators begin with
  forgetting all of them. Regions in use are let go of after their last use, others before the
  answer: their owner may free the memory then.
- What opens and closes memory runs on one thread, in order of arrival: what was asked to come and
  then to go is gone, also when nobody waited for the first.
- Nothing that is sent, and no line of the log, holds a key or a handle.
- Where the device opens no memory of others, CUDA's is refused and its list is empty.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from functools import partial
from typing import Any, Final

from headrace.errors import RequestError
from headrace.regions.region import shown
from headrace.regions.table import RegionTable
from headrace_proto.v1 import inference_pb2 as pb

log = logging.getLogger(__name__)

EXTENSION: Final = "system_shared_memory"
CUDA_EXTENSION: Final = "cuda_shared_memory"


class SharedMemoryService:
    """Answers for one table of regions; its methods are for the event loop."""

    def __init__(
        self,
        table: RegionTable,
        thread: Executor,
        *,
        clock: Callable[[], float],
        device_index: int = 0,
    ) -> None:
        """Prepare; `device_index` is CUDA's number of the GPU that the server uses."""
        self._table = table
        self._thread = thread
        self._clock = clock
        self._device_index = device_index

    @property
    def methods(self) -> Mapping[str, Callable[[Any], Any]]:
        """The RPCs that are offered, by name: request message in, response message out."""
        return {
            "SystemSharedMemoryRegister": self.register,
            "SystemSharedMemoryStatus": self.status,
            "SystemSharedMemoryUnregister": self.unregister,
            "CudaSharedMemoryRegister": self.register_cuda,
            "CudaSharedMemoryStatus": self.cuda_status,
            "CudaSharedMemoryUnregister": self.unregister_cuda,
        }

    async def register(
        self, request: pb.SystemSharedMemoryRegisterRequest
    ) -> pb.SystemSharedMemoryRegisterResponse:
        """Let requests name a region."""
        fields = (request.name, request.key, request.offset, request.byte_size)
        await self._on_thread(self._table.register, *fields, self._clock())
        log.info("%s has %d bytes", shown(request.name), request.byte_size)
        return pb.SystemSharedMemoryRegisterResponse()

    def status(
        self, request: pb.SystemSharedMemoryStatusRequest
    ) -> pb.SystemSharedMemoryStatusResponse:
        """List the regions, or one of them; their keys are left out."""
        status = pb.SystemSharedMemoryStatusResponse.RegionStatus
        regions = {
            region.name: status(name=region.name, offset=region.offset, byte_size=region.size_bytes)
            for region in self._table.listed(request.name)
        }
        return pb.SystemSharedMemoryStatusResponse(regions=regions)

    async def unregister(
        self, request: pb.SystemSharedMemoryUnregisterRequest
    ) -> pb.SystemSharedMemoryUnregisterResponse:
        """Forget a region, or all of them; an unknown one is no error."""
        await self._on_thread(self._table.unregister, request.name)
        return pb.SystemSharedMemoryUnregisterResponse()

    async def register_cuda(
        self, request: pb.CudaSharedMemoryRegisterRequest
    ) -> pb.CudaSharedMemoryRegisterResponse:
        """Let requests name memory of the GPU."""
        index = self._device_index
        if self._table.takes_device_memory and request.device_id != index:
            raise RequestError(
                f"CUDA {shown(request.name)} is said to be of device {request.device_id}; this "
                f"server serves GPU {index}, as CUDA counts them for it: register memory of that "
                f"one, with device_id {index}"
            )
        fields = (request.name, request.raw_handle, request.byte_size)
        await self._on_thread(self._table.register_shared, *fields, self._clock())
        log.info("CUDA %s has %d bytes", shown(request.name), request.byte_size)
        return pb.CudaSharedMemoryRegisterResponse()

    def cuda_status(
        self, request: pb.CudaSharedMemoryStatusRequest
    ) -> pb.CudaSharedMemoryStatusResponse:
        """List the regions of the GPU's memory, or one of them."""
        status, index = pb.CudaSharedMemoryStatusResponse.RegionStatus, self._device_index
        regions = {
            region.name: status(name=region.name, device_id=index, byte_size=region.size_bytes)
            for region in self._table.listed(request.name, on_device=True)
        }
        return pb.CudaSharedMemoryStatusResponse(regions=regions)

    async def unregister_cuda(
        self, request: pb.CudaSharedMemoryUnregisterRequest
    ) -> pb.CudaSharedMemoryUnregisterResponse:
        """Forget a region of the GPU's memory, or all of them; an unknown one is no error."""
        await self._on_thread(partial(self._table.unregister, request.name, on_device=True))
        return pb.CudaSharedMemoryUnregisterResponse()

    async def _on_thread(self, work: Callable[..., None], *args: Any) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, work, *args)
