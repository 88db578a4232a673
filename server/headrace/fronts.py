"""Opens the front door that the configuration asks for: grpcio, or native with grpcio behind."""

from __future__ import annotations

import asyncio
import logging
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.access import Access
from headrace.config import ServerConfig
from headrace.config.network import DEFAULT_CONNECTIONS
from headrace.descriptors import make_room
from headrace.device.base import Device
from headrace.errors import ConfigError
from headrace.link.base import StreamLink
from headrace.naps import end_naps_in_time
from headrace.port import channel_options, joined
from headrace.rpc.drive import LoopDriver
from headrace.rpc.grpcio_front import GrpcioFront, GrpcioOptions
from headrace.rpc.health import HealthService
from headrace.rpc.infer import InferService
from headrace.rpc.inflate import Inflater
from headrace.rpc.stream import StreamBounds
from headrace.rpc.stream_service import StreamService
from headrace.slots.wait import Wait

if TYPE_CHECKING:
    from headrace.rpc.native_front import NativeFront

log = logging.getLogger(__name__)

LOOPBACK_GRACE_S = 0.5  # for admin calls that are still open behind the native front


class FrontDoor:
    """The open port; `start`, then `drain`, then `close`."""

    def __init__(
        self,
        config: ServerConfig,
        device: Device,
        link: StreamLink,
        *,
        access: Access,
        infer: InferService,
        answers: Mapping[str, Callable[[Any], Any]],
        health: HealthService,
        wait: Wait,
        clock: Callable[[], float],
    ) -> None:
        self._config = config
        self._device = device
        self._link = link
        self._access = access
        self._infer = infer
        self._answers = answers  # by RPC, of all that are unary but ModelInfer
        self._health = health
        self._wait = wait
        self._clock = clock
        self._grpcio: GrpcioFront | None = None
        self._native: NativeFront | None = None
        self._folder: str | None = None
        self.streams: StreamService | None = None
        self._inflater = Inflater(config.max_request_bytes)
        self.port = 0

    async def start(self) -> None:
        """Open the port and serve.

        Raises:
            ConfigError: The address cannot be bound, or the transport is not installed.
        """
        make_room(self._config.grpc_max_connections or DEFAULT_CONNECTIONS)
        if self._config.transport == "native":
            await self._start_native()
        else:
            await self._start_grpcio()

    async def drain(self, grace_s: float) -> None:
        """Wait until every reply has left, at most `grace_s`; new requests are refused."""
        if self._native is not None:
            await asyncio.to_thread(self._native.drain, grace_s)
        if self._grpcio is not None:
            await self._grpcio.stop(LOOPBACK_GRACE_S if self._native is not None else grace_s)

    async def close(self) -> None:
        """Close the port; a second call does nothing."""
        native, self._native = self._native, None
        grpcio, self._grpcio = self._grpcio, None
        folder, self._folder = self._folder, None
        if native is not None:
            await asyncio.to_thread(native.close)
        if grpcio is not None:
            await grpcio.stop(0)
        self._inflater.close()
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)

    async def _start_grpcio(self) -> None:
        driver = self._loop_driver()
        self._device.on_progress = driver.wake_threadsafe
        certificates = self._access.certificates
        options = GrpcioOptions(
            joined(self._config.grpc_address, self._config.grpc_port),
            channel_options(self._config),
            None if certificates is None else certificates.credentials(),
            self._config.max_bytes_in_flight,
        )
        self._grpcio = await self._open_grpcio(options, driver, driver)
        self.port = self._grpcio.port

    async def _start_native(self) -> None:
        try:
            from headrace.rpc.native_front import NativeFront, NativeOptions
        except ImportError as error:
            raise ConfigError(
                f"the native transport is not installed ({error}): install "
                "headrace-server[native], or use --transport grpcio",
                field="--transport",
            ) from error
        config = self._config
        log.warning("native has no limit on a message that is still arriving: trust its callers")
        self._folder = tempfile.mkdtemp(prefix="headrace-")  # readable by this user alone
        path = Path(self._folder, "behind.sock")
        self._grpcio = await self._open_grpcio(
            GrpcioOptions(f"unix:{path}", channel_options(config)), None, self._loop_driver()
        )
        self._native = NativeFront(
            NativeOptions(
                joined(config.grpc_address, config.grpc_port),
                str(path),
                io_threads=config.grpc_io_threads,
                max_concurrent_streams=config.max_concurrent_streams,
                max_metadata_bytes=config.grpc_max_metadata_bytes,
                keepalive_time_ms=config.grpc_keepalive_time_ms,
                keepalive_timeout_ms=config.grpc_keepalive_timeout_ms,
                reuse_port=config.reuse_grpc_port,
                max_unsent_bytes=config.max_bytes_in_flight,
            ),
            self._infer,
            self._link,
            self._wait,
            nap_s=config.nap_us / 1e6,
            clock=self._clock,
            bind_thread=self._bind_thread,
            gate=self._access.gate,
        )
        self._device.on_progress = self._native.on_progress
        self._native.start()
        self.port = self._native.port

    def _loop_driver(self) -> LoopDriver:
        """Make the loop's thread step the core; under native only for what streams submit.

        Both threads may step then, one at a time: what one enqueued the other may see done.
        """
        self._bind_thread()
        return LoopDriver(
            self._link,
            asyncio.get_running_loop(),
            self._wait,
            nap_s=self._config.nap_us / 1e6,
            clock=self._clock,
        )

    def _bind_thread(self) -> None:
        """Make the calling thread the one that steps the core."""
        self._device.bind_thread()
        end_naps_in_time()

    async def _open_grpcio(
        self, options: GrpcioOptions, driver: LoopDriver | None, stream_driver: LoopDriver
    ) -> GrpcioFront:
        config = self._config
        self.streams = StreamService(
            self._infer,
            self._link,
            stream_driver,
            StreamBounds(config.max_stream_requests, config.max_stream_bytes),
            inflater=self._inflater,
            clock=self._clock,
            max_held_bytes=config.max_bytes_in_flight,
        )
        front = GrpcioFront(
            options,
            self._link,
            driver,
            infer=self._infer,
            answers=self._answers,
            health=self._health,
            streams=self.streams,
            gate=self._access.gate,
            inflater=self._inflater,
            clock=self._clock,
        )
        await front.start()
        return front
