"""Everything that loads and unloads models, put together, from the start to the end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from headrace.catalog import ModelCatalog
from headrace.config import ServerConfig
from headrace.control.model_control import ModelControl
from headrace.control.own_folder import remove_dead
from headrace.control.polling import RepositoryPoll
from headrace.control.shelf import Shelf
from headrace.control.start import load_at_start
from headrace.control.swap import SlotWatch, Swap
from headrace.control.uploads import FOLDERS, UploadBounds, Uploads
from headrace.control.versions import VersionLoader
from headrace.device.base import Device
from headrace.errors import ConfigError
from headrace.link.base import LineLink
from headrace.loader import Loader, LoadOptions
from headrace.metrics import Metrics
from headrace.response_cache.store import ResponseCache
from headrace.rpc.repository import RepositoryService
from headrace.slots.blocks import BlockPool

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Core:
    """What serves.

    Attributes:
        device: Where models run.
        blocks: Staging blocks of the thread that serves.
        metrics: Show what is served.
        catalog: Says what is served.
        link: To the scheduler.
        watch: The timeline.
        cache: Of replies; None where none are kept.
    """

    device: Device
    blocks: BlockPool
    metrics: Metrics
    catalog: ModelCatalog
    link: LineLink
    watch: SlotWatch
    cache: ResponseCache | None = None


class ModelKeeper:
    """Keeps what is served as the operator and, where they may, clients want it.

    Args:
        config: The operator's.
        core: What serves.
        is_leaving: Says that the server is told to stop.
        clock: Seconds.
    """

    def __init__(
        self,
        config: ServerConfig,
        core: Core,
        *,
        is_leaving: Callable[[], bool],
        clock: Callable[[], float],
    ) -> None:
        self._config = config
        self._core = core
        self._is_leaving = is_leaving
        self._clock = clock
        self._uploads = Uploads(
            UploadBounds(
                config.allow_model_uploads, config.max_upload_files, config.max_upload_bytes
            )
        )
        self._shelf = Shelf(
            config.model_repository,
            config.model_files,
            self._uploads,
            compute_capability=self._make_loader(core.blocks).compute_capability,
        )
        self._control = self._make_control()
        self._poll: RepositoryPoll | None = None
        self._polling: asyncio.Task[None] | None = None

    def load_at_start(self) -> None:
        """Load what shall be served from the start; before anything serves, on any thread.

        Raises:
            ConfigError: See `start.load_at_start`.
        """
        if self._config.allow_model_uploads:
            _check_runtime()
            remove_dead(FOLDERS)
        self._core.device.bind_thread()
        loader = self._make_loader(self._core.blocks)
        started = load_at_start(self._config, self._shelf, loader, self._core.catalog)
        self._control.taken.update(started.taken)
        self._poll = RepositoryPoll(
            self._control,
            self._shelf,
            self._core.catalog,
            started.seen,
            is_leaving=self._is_leaving,
        )

    def service(self) -> RepositoryService:
        """Return the RPCs with which clients see and, in explicit mode, change what is served."""
        mode = self._config.model_control_mode
        control = self._control if mode == "explicit" else None
        return RepositoryService(self._core.catalog, control, mode=mode)

    def begin(self) -> None:
        """Begin to look at the repositories, where that is wanted; on the event loop."""
        if self._config.model_control_mode == "poll" and self._poll is not None:
            poll = self._poll.run_forever(self._config.repository_poll_s)
            self._polling = asyncio.get_running_loop().create_task(poll)

    async def close(self, grace_s: float) -> bool:
        """Load nothing more; False when a load is still at work after the grace.

        A second call does nothing.
        """
        polling, self._polling = self._polling, None
        if polling is not None:
            polling.cancel()
        is_finished = await self._control.close(grace_s)
        self._uploads.close()
        return is_finished

    def _make_control(self) -> ModelControl:
        core = self._core
        versions = VersionLoader(
            core.device,
            core.catalog,
            core.metrics,
            self._make_loader,
            blocks_bytes=core.blocks.budget_bytes,
            is_leaving=self._is_leaving,
            shown=self._uploads.hidden,
        )
        loop = asyncio.get_running_loop()
        swap = Swap(
            core.catalog,
            core.link,
            core.metrics,
            core.watch,
            grace_s=self._config.exit_timeout_s,
            on_loop=loop.call_soon_threadsafe,
            clock=self._clock,
        )
        return ModelControl(
            self._shelf,
            versions,
            swap,
            core.catalog,
            bind_thread=core.device.bind_thread,
            is_leaving=self._is_leaving,
        )

    def _make_loader(self, blocks: BlockPool) -> Loader:
        config = self._config
        options = LoadOptions(
            auto_complete=not config.disable_auto_complete_config,
            default_num_slots=config.default_num_slots,
            default_max_queue_size=config.max_queue_size,
            max_sequence_state_bytes=config.max_sequence_state_bytes,
            ort_intra_op_threads=config.ort_intra_op_threads,
            allow_host_code=config.allow_host_code,
            cuda_graphs=config.cuda_graphs,
        )
        core = self._core
        return Loader(
            *(core.device, blocks, core.metrics, options),
            clock=self._clock,
            cache=core.cache,
            catalog=core.catalog,
        )


def _check_runtime() -> None:
    """Refuse to take models from clients where they could read files of this machine.

    Raises:
        ConfigError: This ONNX Runtime is too old, or missing.
    """
    try:
        from headrace.engines.ort_session import CONFINED_SINCE, is_confined
    except ImportError as error:
        reason = f"needs ONNX Runtime, which does not load: {error}"
        raise ConfigError(reason, field="--allow-model-uploads") from error
    if not is_confined():
        needed = ".".join(map(str, CONFINED_SINCE))
        reason = (
            f"needs onnxruntime {needed} or later: with older ones a model can read any file that "
            "the server can read"
        )
        raise ConfigError(reason, field="--allow-model-uploads")
