"""Opens a model's line: the queue policy that its configuration asks for, over its slots."""

from __future__ import annotations

import logging
from dataclasses import replace

from headrace.engines.batching_spec import BatchingSpec
from headrace.engines.model_spec import ModelSpec
from headrace.metrics import ModelMetrics
from headrace.opening import Opened
from headrace.scheduling.batcher import Batcher, SingleBatcher
from headrace.scheduling.dynamic import DynamicBatcher
from headrace.scheduling.line import Line
from headrace.scheduling.ordering import Ordering
from headrace.sequence_seats import MAX_STATE_BYTES, open_seats
from headrace.slots.capacity import Capacity
from headrace.slots.pool import SlotPool

log = logging.getLogger(__name__)


def open_line(
    spec: ModelSpec,
    opened: Opened,
    metrics: ModelMetrics,
    default_max_queue_size: int,
    max_state_bytes: int = MAX_STATE_BYTES,
) -> Line:
    """Open the line of a model and say in the log how it queues.

    Args:
        spec: The model's.
        opened: Its slots.
        metrics: Its counters.
        default_max_queue_size: Requests of a priority that may wait, where the configuration does
            not say.
        max_state_bytes: What the model's sequences may carry, all together.

    Raises:
        ConfigError: The state of one sequence is larger than that.
    """
    pool = opened.pool
    if spec.batching is None and pool.is_inline:  # too short a run for a policy to pay
        log.info("%s: requests run alone; %d may wait", spec.name, default_max_queue_size)
        batcher = SingleBatcher(pool.least_s)
        return Line(spec.name, batcher, pool, metrics, default_max_queue_size)
    batching = spec.batching or BatchingSpec()  # deadlines and sources count without batches, too
    max_queue_size = batching.queue_size(default_max_queue_size)
    log.info("%s: %s", spec.name, describe(batching, max_queue_size))
    _warn(spec.name, batching, opened)
    seats = None
    if spec.sequence is not None:
        seats = open_seats(spec.name, spec.sequence, len(pool.slots), max_state_bytes)
        batching = seats.policy(batching)

    def batcher_of(pool: SlotPool, *, is_pinned: bool = True) -> Batcher:
        # One stream alone has no company to wait for.
        policy = replace(batching, max_delay_s=0.0, target_p99_s=0.0) if is_pinned else batching
        batcher = _dynamic(policy, opened.capacity, pool, default_max_queue_size)
        return batcher if seats is None else seats.over(batcher, is_pinned=is_pinned)

    return Line(
        spec.name,
        batcher_of(pool, is_pinned=False),
        pool,
        metrics,
        max_queue_size,
        capacity=opened.capacity,
        ordering=Ordering() if batching.preserve_ordering else None,
        burst_size=min(batching.max_rows, batching.least_queue_size(default_max_queue_size)),
        batcher_of=batcher_of,
    )


def _dynamic(
    policy: BatchingSpec, capacity: Capacity, pool: SlotPool, default_max_queue_size: int
) -> DynamicBatcher:
    """Return what batches for these slots."""
    return DynamicBatcher(
        *(policy, capacity, pool.starts_at, default_max_queue_size),
        num_busy=pool.num_busy,
        num_idle=pool.num_idle,
        ends_at=pool.ends_at,
    )


def _warn(model: str, batching: BatchingSpec, opened: Opened) -> None:
    """Name what the configuration asks for in vain."""
    if batching.max_rows > 1 and all(layout.kind is None for layout in opened.layouts):
        log.warning(
            "%s: requests run alone although batching is on: the first dimension of all inputs and "
            "outputs must be the batch, and shapes must be known before a run",
            model,
        )
    row_s = opened.capacity.mean_s(1)
    if 0.0 < batching.target_p99_s < row_s:
        log.warning(
            "%s: one row alone took %.3g ms, more than headrace.target_p99_ms: most requests will "
            "be refused",
            model,
            row_s * 1e3,
        )


def describe(batching: BatchingSpec, max_queue_size: int) -> str:
    """Say in a few words how a model queues."""
    words = [
        f"batches of up to {batching.max_rows} rows" if batching.max_rows > 1 else "no batches"
    ]
    if batching.target_p99_s:
        words.append(f"a 99th percentile of {batching.target_p99_s * 1e3:g} ms is aimed at")
    elif batching.max_delay_s and batching.max_rows > 1:
        words.append(f"at most {batching.max_delay_s * 1e6:g} us of waiting for company")
    if batching.num_priorities > 1:
        words.append(f"{batching.num_priorities} priorities")
    if batching.keeps_latest:
        words.append("of each source the latest only")
    if batching.source_weights:
        words.append(f"shares of their own for {len(batching.source_weights)} sources")
    if batching.preserve_ordering:
        words.append("replies in order")
    return ", ".join((*words, f"{max_queue_size} requests may wait"))
