"""Memory that clients share, as the operator wants it: opened, watched, closed with the server.

Nobody tells when a client is gone, so the table is looked through from time to time.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Final

from headrace.config import ServerConfig
from headrace.device.base import Device
from headrace.metrics import Metrics
from headrace.regions.file import RegionFile, open_file
from headrace.regions.key import file_name
from headrace.regions.table import Quota, RegionTable
from headrace.rpc.shared_memory import CUDA_EXTENSION, EXTENSION, SharedMemoryService

log = logging.getLogger(__name__)

LOOKS_A_LEASE: Final = 4
LONGEST_REST_S: Final = 5.0
"""Between two looks: a region whose client has died without a name left is gone as soon."""


class ClientShm:
    """What is offered of shared memory; nothing, where the operator has not switched it on.

    Attributes:
        table: The regions; None where none can be registered.
    """

    def __init__(
        self,
        config: ServerConfig,
        metrics: Metrics,
        device: Device,
        *,
        clock: Callable[[], float],
    ) -> None:
        """Prepare; `device` copies regions itself where it has memory of its own."""
        self.table: RegionTable | None = None
        self._clock = clock
        self._device_index = device.index
        self._lease_s = config.client_shm_lease_s
        self._watching: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, "headrace-regions")  # opens and closes memory
        if config.allow_client_shm:
            uids = frozenset(config.client_shm_uid or (os.geteuid(),))
            prefixes = config.client_shm_key_prefix
            quota = Quota(config.client_shm_max_regions, config.client_shm_max_bytes, self._lease_s)
            copier = None if device.is_unified else device
            self.table = RegionTable(
                partial(_open, prefixes, uids), quota, copier, on_unused=self._let_go
            )
            _observe(metrics, self.table)

    @property
    def methods(self) -> Mapping[str, Callable[[Any], Any]]:
        """The RPCs that are offered because of it, by name."""
        if self.table is None:
            return {}
        service = SharedMemoryService(
            self.table, self._thread, clock=self._clock, device_index=self._device_index
        )
        return service.methods

    @property
    def extensions(self) -> tuple[str, ...]:
        """What the server's metadata say of it."""
        if self.table is None:
            return ()
        return (EXTENSION, CUDA_EXTENSION) if self.table.takes_device_memory else (EXTENSION,)

    def begin(self) -> None:
        """Begin to look for clients that are gone; on the event loop."""
        if self.table is not None:
            self._watching = asyncio.get_running_loop().create_task(self._watch(self.table))

    def close(self) -> None:
        """Forget every region; a second call does nothing."""
        watching, self._watching = self._watching, None
        if watching is not None:
            watching.cancel()
        self._thread.shutdown(cancel_futures=True)
        if self.table is not None:
            self.table.close()

    def _let_go(self) -> None:
        if self.table is not None:
            try:
                self._thread.submit(self.table.let_go)
            except RuntimeError:  # it was shut down: nobody is served who would wait
                self.table.let_go()

    async def _watch(self, table: RegionTable) -> None:
        rest_s = min(self._lease_s / LOOKS_A_LEASE, LONGEST_REST_S)
        while True:
            await asyncio.sleep(rest_s)
            try:
                loop = asyncio.get_running_loop()
                await loop.run_in_executor(self._thread, table.sweep, self._clock())
            except Exception:
                log.exception("regions of shared memory could not be looked through: a bug")


def open_client_shm(
    config: ServerConfig,
    metrics: Metrics,
    device: Device,
    stack: AsyncExitStack,
    *,
    clock: Callable[[], float],
) -> ClientShm:
    """Offer what the operator has switched on, until `stack` is closed; on the event loop."""
    shm = ClientShm(config, metrics, device, clock=clock)
    stack.callback(shm.close)
    shm.begin()
    return shm


def _open(prefixes: tuple[str, ...], uids: frozenset[int], key: str) -> RegionFile:
    return open_file(file_name(key, prefixes), uids)


def _observe(metrics: Metrics, table: RegionTable) -> None:
    metrics.add_source("headrace_regions", lambda: table.num_regions)
    metrics.add_source("headrace_regions_bytes", lambda: table.num_bytes)
    metrics.add_source("headrace_region_read_bytes_total", lambda: table.num_read_bytes)
    metrics.add_source("headrace_region_written_bytes_total", lambda: table.num_written_bytes)
    metrics.add_source("headrace_region_direct_bytes_total", lambda: table.num_direct_bytes)
