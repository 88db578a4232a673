"""The composition root: opens everything in order, serves, and closes it in reverse order."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from headrace.access import Access, open_access
from headrace.banner import OFF, Banner, banner_model, print_banner
from headrace.catalog import ModelCatalog
from headrace.config import ServerConfig
from headrace.device import open_device
from headrace.device.base import Device
from headrace.engines.repository import find_models
from headrace.errors import ConfigError
from headrace.fronts import FrontDoor
from headrace.life import EXIT_CUT_SHORT, Life, Phase
from headrace.link.local import LocalLink
from headrace.loader import Loader, LoadOptions, load_all
from headrace.memory import keep_large_blocks
from headrace.metrics import Metrics
from headrace.metrics_http import MetricsServer
from headrace.observe import observe, observe_door, observe_model
from headrace.port import joined
from headrace.rpc.admin import AdminService
from headrace.rpc.health import HealthService
from headrace.rpc.infer import InferService
from headrace.rpc.log_settings import LogControl
from headrace.rpc.prepare import Limits
from headrace.rpc.settings import SettingsService
from headrace.rpc.status import OVERLOAD_STATUS
from headrace.scheduling.admission import Admission
from headrace.scheduling.scheduler import Scheduler
from headrace.slots.blocks import BlockPool
from headrace.slots.poller import Poller
from headrace.slots.wait import choose_wait
from headrace.timeline.control import TimelineControl
from headrace.timeline.recorder import Bounds
from headrace.timeline.switch import TimelineSwitch

log = logging.getLogger(__name__)

clock = time.monotonic


@dataclass(slots=True)
class _Opened:
    """Everything that is open while the server serves."""

    config: ServerConfig
    device: Device
    blocks: BlockPool
    metrics: Metrics
    catalog: ModelCatalog
    scheduler: Scheduler
    link: LocalLink
    door: FrontDoor
    http: MetricsServer | None


def run(config: ServerConfig, log_control: LogControl) -> int:
    """Serve until SIGTERM or SIGINT; return the exit code.

    Raises:
        HeadraceError: The server cannot start as it was told to.
    """
    keep_large_blocks()
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_serve(config, log_control))
    return 0


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Prefer uvloop, which takes a fifth off grpcio's cost a call."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


async def _serve(config: ServerConfig, log_control: LogControl) -> None:
    life = Life()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, life.on_signal)
    timeline = _make_timeline(config)
    # In a thread: ending a recording writes what is left of it.
    loop.add_signal_handler(signal.SIGUSR2, loop.run_in_executor, None, timeline.toggle)
    async with _open(config, life, timeline, log_control) as opened:
        if not life.stop_asked.is_set():
            gc.collect()
            gc.freeze()  # what is loaded stays: no collection needs to look at it again
            life.phase = Phase.SERVING
            _announce(opened)
        await life.stop_asked.wait()
        is_finished = await life.end(
            opened.door,
            opened.link,
            lame_duck_s=config.lame_duck_s,
            grace_s=config.exit_timeout_s,
            clock=clock,
        )
        if not is_finished:
            await opened.door.close()
            life.exit_now(EXIT_CUT_SHORT)  # closing slots would wait for the work in them


@contextlib.asynccontextmanager
async def _open(
    config: ServerConfig, life: Life, timeline: TimelineSwitch, log_control: LogControl
) -> AsyncIterator[_Opened]:
    """Open device → staging → models → scheduler → metrics → front door; close in reverse."""
    async with contextlib.AsyncExitStack() as stack:
        device = open_device(config.device, _gpu(config))
        stack.callback(device.close)
        blocks = BlockPool(device, min(config.pinned_memory_pool_bytes, config.max_bytes_in_flight))
        stack.callback(blocks.close)
        metrics = Metrics()
        access = open_access(config, metrics, clock=clock)  # before what takes long to load
        catalog = ModelCatalog(strict_readiness=config.strict_readiness)
        stack.callback(catalog.close)
        loader = Loader(device, blocks, metrics, _load_options(config), clock=clock)
        await asyncio.to_thread(_load, config, device, loader, catalog)  # signals are heard
        scheduler = _open_scheduler(config, blocks, catalog)
        link = LocalLink(scheduler)
        stack.callback(link.close)
        catalog.watch(lambda: scheduler.sticky is None and life.is_serving())
        observe(metrics, scheduler, blocks, config)
        for model in catalog.models():
            observe_model(metrics, model)
        stack.callback(metrics.close)
        http = _open_http(config, life, metrics, scheduler, catalog)
        if http is not None:
            stack.callback(http.close)
        infer = _make_infer(config, link, catalog)
        stack.callback(timeline.close)
        trace = _connect(timeline, config, device, catalog, infer)
        settings = SettingsService(catalog, log_control, trace)
        door = _make_door(
            config, life, device, link, catalog, infer=infer, settings=settings, access=access
        )
        stack.push_async_callback(door.close)
        observe_door(metrics, door)
        await door.start()
        yield _Opened(config, device, blocks, metrics, catalog, scheduler, link, door, http)


def _gpu(config: ServerConfig) -> int:
    if len(config.gpus) > 1:
        raise ConfigError(
            f"got {','.join(map(str, config.gpus))}; one process serves one GPU: start a server "
            "for each",
            field="--gpus",
        )
    return config.gpus[0] if config.gpus else 0


def _load_options(config: ServerConfig) -> LoadOptions:
    return LoadOptions(
        auto_complete=not config.disable_auto_complete_config,
        default_num_slots=config.default_num_slots,
        default_max_queue_size=config.max_queue_size,
        ort_intra_op_threads=config.ort_intra_op_threads,
        allow_host_code=config.allow_host_code,
        cuda_graphs=config.cuda_graphs,
    )


def _load(config: ServerConfig, device: Device, loader: Loader, catalog: ModelCatalog) -> None:
    device.bind_thread()
    num_faults = load_all(
        find_models(
            config.model_repository,
            config.model_files,
            compute_capability=loader.compute_capability,
        ),
        loader,
        catalog,
    )
    if num_faults and config.exit_on_error:
        raise ConfigError(
            f"{num_faults} of the models cannot be served (see the log); "
            "--exit-on-error=false serves the others"
        )
    if not num_faults and not any(catalog.models()):
        raise ConfigError(
            "there is no model to serve: name a model file, or a folder with --model-repository"
        )


def _open_scheduler(config: ServerConfig, blocks: BlockPool, catalog: ModelCatalog) -> Scheduler:
    waiting_bytes = max(config.max_bytes_in_flight - config.pinned_memory_pool_bytes, 0)
    admission = Admission(blocks, max_waiting_bytes=waiting_bytes)
    scheduler = Scheduler(blocks, Poller(), admission, clock=clock)
    for model in catalog.models():
        scheduler.add_line(model.line)
    return scheduler


def _open_http(
    config: ServerConfig,
    life: Life,
    metrics: Metrics,
    scheduler: Scheduler,
    catalog: ModelCatalog,
) -> MetricsServer | None:
    if not config.allow_metrics:
        return None
    http = MetricsServer(
        metrics,
        is_live=lambda: scheduler.sticky is None,
        is_ready=lambda: life.is_serving() and catalog.is_ready,
        address=config.metrics_address.strip("[]"),  # as people write IPv6
        port=config.metrics_port,
    )
    http.open()
    return http


def _make_timeline(config: ServerConfig) -> TimelineSwitch:
    bounds = Bounds(config.timeline_rate, config.timeline_max_bytes, config.timeline_max_s)
    return TimelineSwitch(config.timeline, bounds, clock=clock)


def _connect(
    timeline: TimelineSwitch,
    config: ServerConfig,
    device: Device,
    catalog: ModelCatalog,
    infer: InferService,
) -> TimelineControl:
    """Record what is open, if the operator wants it from the start."""
    slots = (slot for model in catalog.models() for slot in model.line.pool.slots)
    timeline.connect(device, slots, infer)
    if config.timeline_at_start:
        timeline.start()
    return TimelineControl(timeline, is_on_at_start=config.timeline_at_start)


def _make_infer(config: ServerConfig, link: LocalLink, catalog: ModelCatalog) -> InferService:
    return InferService(
        catalog,
        link,
        Limits(config.max_tensors, config.max_elements, config.max_response_bytes),
        clock=clock,
        max_request_bytes=config.max_request_bytes,
        overload=OVERLOAD_STATUS[config.overload_status],
    )


def _make_door(
    config: ServerConfig,
    life: Life,
    device: Device,
    link: LocalLink,
    catalog: ModelCatalog,
    *,
    infer: InferService,
    settings: SettingsService,
    access: Access,
) -> FrontDoor:
    return FrontDoor(
        config,
        device,
        link,
        access=access,
        infer=infer,
        settings=settings,
        admin=AdminService(catalog, server_id=config.server_id, is_stopping=life.is_stopping),
        health=HealthService(catalog, is_welcome=life.is_serving, is_stopping=life.is_stopping),
        wait=choose_wait(config.poller_wait, device.kind),
        clock=clock,
    )


def _announce(opened: _Opened) -> None:
    """Tell people and scripts what is served, where, on what."""
    config, device, http = opened.config, opened.device, opened.http
    failures = {name: reason for (name, _), reason in opened.catalog.failures.items()}
    print_banner(
        Banner(
            grpc=joined(config.grpc_address, opened.door.port),
            metrics=OFF if http is None else joined(config.metrics_address, http.port),
            transport=config.transport + (" TLS" if config.uses_tls else ""),
            device="host" if device.kind == "host" else f"{device.kind} {device.index}",
            models=tuple(banner_model(model) for model in opened.catalog.models()),
            failures=failures,
        )
    )
