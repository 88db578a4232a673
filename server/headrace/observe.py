"""Shows the inside of the core as gauges: read at each scrape, costing requests nothing."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import attrgetter

from headrace.config import ServerConfig
from headrace.fronts import FrontDoor
from headrace.metrics import Metrics
from headrace.model import ServedModel
from headrace.response_cache.store import ResponseCache
from headrace.scheduling.line import Line
from headrace.scheduling.scheduler import Scheduler
from headrace.scheduling.sequences import SequenceBatcher
from headrace.slots.blocks import BlockPool


def observe(
    metrics: Metrics,
    scheduler: Scheduler,
    blocks: BlockPool,
    config: ServerConfig,
) -> None:
    """Add a source for every gauge of the core, and the machine's own figures."""
    metrics.open_machine(
        cpu=config.allow_cpu_metrics,
        gpu=config.allow_gpu_metrics,
        interval_s=config.metrics_interval_ms / 1000,
    )
    poller = scheduler.poller
    metrics.add_source("headrace_slots_busy", lambda: poller.num_busy_slots)
    metrics.add_source("headrace_lanes_in_flight", lambda: poller.num_in_flight)
    metrics.add_source("headrace_poller_sweeps_total", lambda: poller.num_sweeps)
    metrics.add_source("headrace_blocks_leased", lambda: blocks.num_leased)
    metrics.add_source("headrace_blocks_leased_bytes", lambda: blocks.leased_bytes)
    pool_bytes = min(config.pinned_memory_pool_bytes, config.max_bytes_in_flight)
    metrics.add_source("nv_pinned_memory_pool_total_bytes", lambda: pool_bytes)
    metrics.add_source("nv_pinned_memory_pool_used_bytes", lambda: blocks.leased_bytes)


def open_cache(config: ServerConfig, metrics: Metrics) -> ResponseCache | None:
    """Return the cache of replies that the operator wants, and show what is in it."""
    if not config.cache_config.max_bytes:
        return None
    cache = ResponseCache(config.cache_config.max_bytes)
    metrics.add_source("headrace_cache_bytes", lambda: cache.num_bytes)
    metrics.add_source("headrace_cache_max_bytes", lambda: cache.max_bytes)
    metrics.add_source("headrace_cache_entries", lambda: len(cache))
    metrics.add_source("headrace_cache_evictions_total", lambda: cache.num_evictions)
    return cache


def observe_model(metrics: Metrics, model: ServedModel) -> None:
    """Show the queue of a model and what it takes, in place of another of its name and version.

    Counters of requests go on where that one left off.
    """
    line = model.line
    labels = {"model": model.spec.name, "version": str(model.spec.version)}
    metrics.remove_sources(**labels)
    for name in ("headrace_queue_length", "nv_inference_pending_request_count"):
        metrics.add_source(name, partial(_length, line), **labels)
    metrics.add_source("headrace_slots_pinned", lambda: line.pool.num_reserved, **labels)
    metrics.add_table("headrace_service_seconds", "rows", partial(_takes_s, line), **labels)
    if line.sequences is not None:
        observe_sequences(metrics, line, labels)
    observe_resources(metrics, model, labels)


def observe_door(metrics: Metrics, door: FrontDoor) -> None:
    """Show the open streams and what is held for them."""
    metrics.add_source("headrace_streams", lambda: door.streams.num_open if door.streams else 0)
    metrics.add_source(
        "headrace_stream_bytes", lambda: door.streams.held.total if door.streams else 0
    )


def observe_resources(metrics: Metrics, model: ServedModel, labels: dict[str, str]) -> None:
    """Show the memory of a model, and its CUDA graphs where they are on."""
    if model.footprint is not None:
        for kind, read in model.footprint.by_kind().items():
            metrics.add_source("headrace_model_memory_bytes", read, **labels, kind=kind)
    tally = model.graphs
    if tally is None:
        return
    metrics.add_source("headrace_graphs", lambda: tally.num_captured, **labels)
    metrics.add_source("headrace_graph_hits_total", lambda: tally.num_hits, **labels)
    for reason in tally.num_misses:
        read = partial(tally.num_misses.__getitem__, reason)
        metrics.add_source("headrace_graph_misses_total", read, **labels, reason=reason)


def observe_sequences(metrics: Metrics, line: Line, labels: dict[str, str]) -> None:
    """Show the sequences of a model that keeps state, those on pinned slots included."""
    for state, name in (("active", "num_sequences"), ("waiting", "num_in_backlog")):
        read = partial(_num_sequences, line, attrgetter(name))
        metrics.add_source("headrace_sequences", read, **labels, state=state)
    read = partial(attrgetter("sequences.num_expired"), line)
    metrics.add_source("headrace_sequences_expired_total", read, **labels)


def _num_sequences(line: Line, read: Callable[[SequenceBatcher | None], int]) -> float:
    return sum(read(each.sequences) for each in (line, *line.pins))


def _length(line: Line) -> float:
    return line.length + sum(pin.length for pin in line.pins)


def _takes_s(line: Line) -> list[tuple[str, float]]:
    return [(str(rows), took_s) for rows, took_s in line.capacity.table()]
