"""The composition root: opens everything in order, serves, and closes it in reverse order."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from headrace.access import Access, open_access
from headrace.banner import OFF, Banner, banner_model, print_banner
from headrace.catalog import ModelCatalog
from headrace.client_shm import ClientShm, open_client_shm
from headrace.config import ServerConfig
from headrace.control.keeper import Core, ModelKeeper
from headrace.device import open_device
from headrace.device.base import Device
from headrace.errors import ConfigError
from headrace.fronts import FrontDoor
from headrace.life import EXIT_CUT_SHORT, EXIT_STOPPED, Life, Phase
from headrace.link.local import LocalLink
from headrace.memory import keep_large_blocks
from headrace.metrics import Metrics
from headrace.metrics_http import MetricsServer
from headrace.observe import observe, observe_door, observe_model, open_cache
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

LAST_LOAD_S = 5.0
"""For a load that is at work when all requests are finished: an engine cannot be stopped, and ends
with the process."""


@dataclass(slots=True)
class _Opened:
    """Everything that is open while the server serves."""

    config: ServerConfig
    device: Device
    catalog: ModelCatalog
    link: LocalLink
    keeper: ModelKeeper
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
        is_loaded = await opened.keeper.close(LAST_LOAD_S if is_finished else 0.0)
        if not (is_finished and is_loaded):
            await opened.door.close()
            # Closing slots would wait for the work in them. A load that is cut short loses nothing.
            life.exit_now(EXIT_STOPPED if is_finished else EXIT_CUT_SHORT)


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
        scheduler = _open_scheduler(config, blocks)
        link = LocalLink(scheduler)
        core = Core(device, blocks, metrics, catalog, link, timeline, open_cache(config, metrics))
        keeper = ModelKeeper(config, core, is_leaving=life.is_leaving, clock=clock)
        stack.push_async_callback(keeper.close, LAST_LOAD_S)
        await asyncio.to_thread(keeper.load_at_start)  # signals are heard
        stack.callback(link.close)
        catalog.watch(lambda: scheduler.sticky is None and life.is_serving())
        observe(metrics, scheduler, blocks, config)
        _serve_all(catalog, link, metrics)
        stack.callback(metrics.close)
        http = _open_http(config, life, metrics, scheduler, catalog)
        if http is not None:
            stack.callback(http.close)
        shm = open_client_shm(config, metrics, device, stack, clock=clock)
        infer = _make_infer(config, link, catalog, shm)
        stack.callback(timeline.close)
        trace = _connect(timeline, config, device, catalog, infer)
        settings = SettingsService(catalog, log_control, trace)
        answers = _answers(config, life, catalog, settings, keeper, shm=shm)
        door = _make_door(
            config, life, device, link, catalog, infer=infer, answers=answers, access=access
        )
        stack.push_async_callback(door.close)
        observe_door(metrics, door)
        await door.start()
        keeper.begin()
        yield _Opened(config, device, catalog, link, keeper, door, http)


def _gpu(config: ServerConfig) -> int:
    if len(config.gpus) > 1:
        raise ConfigError(
            f"got {','.join(map(str, config.gpus))}; one process serves one GPU: start a server "
            "for each",
            field="--gpus",
        )
    return config.gpus[0] if config.gpus else 0


def _open_scheduler(config: ServerConfig, blocks: BlockPool) -> Scheduler:
    waiting_bytes = max(config.max_bytes_in_flight - config.pinned_memory_pool_bytes, 0)
    admission = Admission(blocks, max_waiting_bytes=waiting_bytes)
    return Scheduler(blocks, Poller(), admission, clock=clock)


def _serve_all(catalog: ModelCatalog, link: LocalLink, metrics: Metrics) -> None:
    for model in catalog.models():
        link.add_line(model.line)
        observe_model(metrics, model)


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


def _make_infer(
    config: ServerConfig, link: LocalLink, catalog: ModelCatalog, shm: ClientShm
) -> InferService:
    return InferService(
        catalog,
        link,
        Limits(
            config.max_tensors, config.max_elements, config.max_response_bytes, config.max_strings
        ),
        clock=clock,
        max_request_bytes=config.max_request_bytes,
        overload=OVERLOAD_STATUS[config.overload_status],
        regions=shm.table,
    )


def _answers(
    config: ServerConfig,
    life: Life,
    catalog: ModelCatalog,
    settings: SettingsService,
    keeper: ModelKeeper,
    *,
    shm: ClientShm,
) -> dict[str, Callable[[Any], Any]]:
    """Return what answers each unary RPC but ModelInfer."""
    admin = AdminService(
        catalog,
        server_id=config.server_id,
        is_stopping=life.is_stopping,
        extensions=shm.extensions,
    )
    return {**admin.methods, **settings.methods, **keeper.service().methods, **shm.methods}


def _make_door(
    config: ServerConfig,
    life: Life,
    device: Device,
    link: LocalLink,
    catalog: ModelCatalog,
    *,
    infer: InferService,
    answers: Mapping[str, Callable[[Any], Any]],
    access: Access,
) -> FrontDoor:
    return FrontDoor(
        config,
        device,
        link,
        access=access,
        infer=infer,
        answers=answers,
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
