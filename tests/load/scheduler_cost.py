"""What a queue's policy costs a request: `python -m load.scheduler_cost [profile NAME]`.

A batcher by itself, without transport, blocks or device: requests are queued and taken out again in
batches of 1 and of 32. Prints microseconds a request of `refuse`, `add` and `next_batch` together.
"""

from __future__ import annotations

import cProfile
import pstats
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from headrace.engines.batching_spec import BatchingSpec, QueuePolicy
from headrace.scheduling.batcher import Batcher, SingleBatcher
from headrace.scheduling.dynamic import DynamicBatcher
from headrace.scheduling.request import Request
from helpers.queue_rig import Queue, known

SIZES: Final = (1, 32)
REQUESTS: Final = 640  # a measurement: short, so that some of them meet no other program
BEST_OF: Final = 150  # the least of so many: what other programs take is not the policy's
SHOWN: Final = 20

Fields = Callable[[int], dict[str, object]]


def timed() -> BatchingSpec:
    """A model whose requests may wait for a second."""
    return BatchingSpec(max_rows=32, default_policy=QueuePolicy(default_timeout_s=1.0))


CASES: Final[dict[str, tuple[BatchingSpec | None, Fields]]] = {
    "one at a time": (None, lambda _: {}),
    "batches": (BatchingSpec(max_rows=32), lambda _: {}),
    "deadlines": (BatchingSpec(max_rows=32), lambda _: {"deadline_s": 10.0}),
    "timeouts": (timed(), lambda _: {}),
    "priorities": (
        BatchingSpec(max_rows=32, num_priorities=3, default_priority=2),
        lambda index: {"priority": 1 + index % 3},
    ),
    "64 sources": (BatchingSpec(max_rows=32), lambda index: {"source": f"camera {index % 64}"}),
    "the latest of 64": (
        BatchingSpec(max_rows=32, keeps_latest=True),
        lambda index: {"source": f"camera {index % 64}"},
    ),
    "a target": (BatchingSpec(max_rows=32, target_p99_s=10.0), lambda _: {}),
    "a target, 64 sources": (
        BatchingSpec(max_rows=32, target_p99_s=10.0),
        lambda index: {"source": f"camera {index % 64}"},
    ),
}


def serve(batcher: Batcher, requests: Sequence[Request], size: int) -> None:
    """Queue them and take them out, so many at a time."""
    refuse, add, next_batch = batcher.refuse, batcher.add, batcher.next_batch
    for begin in range(0, len(requests), size):
        for request in requests[begin : begin + size]:
            if refuse(request, 0.0) is None:
                add(request, 0.0)
        while next_batch(0.0) is not None:
            pass


def prepare(name: str) -> tuple[Batcher, list[Request]]:
    """Return an empty queue and what shall go through it."""
    spec, fields = CASES[name]
    queue = Queue(spec or BatchingSpec())
    requests = [queue.request(**fields(index)) for index in range(REQUESTS)]  # type: ignore[arg-type]
    if spec is None:
        return SingleBatcher(), requests
    capacity = known([(1, 0.001), (8, 0.002), (32, 0.005)])
    return DynamicBatcher(spec, capacity, lambda now: now, 1024, num_busy=lambda: 0), requests


def best_us(call: Callable[[], None]) -> float:
    """Return microseconds a request, the least of several measurements."""
    best_s = float("inf")
    for _ in range(BEST_OF):
        began = time.process_time()  # others that run on this machine do not count
        call()
        best_s = min(best_s, time.process_time() - began)
    return best_s / REQUESTS * 1e6


def main(profiled: str | None = None) -> None:
    """Measure and print, or show what one case spends its time on."""
    if profiled is not None:
        batcher, requests = prepare(profiled)
        for size in SIZES:
            profile = cProfile.Profile()
            with profile:
                serve(batcher, requests, size)
            pstats.Stats(profile).sort_stats("tottime").print_stats(SHOWN)
        return
    print(f"{'us a request, in batches of':<28}" + "".join(f"{size:>8}" for size in SIZES))
    for name in CASES:
        batcher, requests = prepare(name)
        costs = [best_us(partial(serve, batcher, requests, size)) for size in SIZES]
        print(f"{name:<28}" + "".join(f"{cost:8.2f}" for cost in costs))


if __name__ == "__main__":
    main(*sys.argv[2:3])
