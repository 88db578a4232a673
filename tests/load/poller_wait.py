"""How late the poller sees that the GPU is done, and what its waiting costs, for each strategy.

    PYTHONPATH=proto:server:client:tests python3 -m load.poller_wait [--seconds 1]

Needs a GPU. The work is a kernel of known duration that hands out when it ended by the GPU's clock,
which is compared with the host's before and after. The driver is the server's own, on the server's
own event loop; callers run in a closed loop, so work is always in flight. Delays run from the
kernel's end, so they hold the copy of its 16 bytes to the host, too: the first rows say what that
takes, seen by a thread that asks the event and does nothing else. `seen` is when a sweep found the
work done, `ended` when its request ended, after the lanes were filled again. The waiting's share of
a core is the thread's CPU time without what the requests themselves cost, which is measured first.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import numpy.typing as npt
import uvloop

from headrace.engines.layout import plan_layout
from headrace.link.local import LocalLink
from headrace.naps import end_naps_in_time
from headrace.rpc.drive import LoopDriver
from headrace.scheduling.request import Request
from headrace.slots.batch import Batch, Output
from headrace.slots.wait import Wait
from helpers.cuda_core_rig import CudaRig
from helpers.cuda_spin import SPIN_BYTES, CudaSpin, gpu_clock_offset_ns

NUM_SLOTS = 4
STRATEGIES = (
    ("spin", Wait.SPIN, 0.0),
    ("nap 10 us", Wait.NAP, 10e-6),
    ("nap 30 us", Wait.NAP, 30e-6),
    ("nap 100 us", Wait.NAP, 100e-6),
    ("predict", Wait.PREDICT, 30e-6),
)
WORKS_US = (300.0, 1000.0, 5000.0)
WARM_UP_S = 0.2

Times = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Row:
    """One strategy at one load.

    Args:
        work_us: of the kernel.
        callers: requests in flight.
        seen_us: p50 and p99 from the kernel's end on the GPU to the sweep that saw it.
        ended_us: p50 and p99 to the end of its request.
        core_share: of one core that the thread took in all.
        waiting_share: of one core, without the cost of the requests themselves.
        clock_error_us: how far the two comparisons of the clocks are apart.
    """

    strategy: str
    work_us: float
    callers: int
    rate: float
    seen_us: tuple[float, float]
    ended_us: tuple[float, float]
    core_share: float
    waiting_share: float
    clock_error_us: float


class Run:
    """Callers in a closed loop on the rig."""

    def __init__(self, rig: CudaRig, work_us: float) -> None:
        self.rig = rig
        self.link = LocalLink(rig.scheduler)
        self.payload = np.array([int(work_us * 1000), 0], np.uint64).tobytes()
        size = SPIN_BYTES
        self.layout = plan_layout([(size,)], [size], [(size,)], [size])
        self.times: list[tuple[int, int, int]] = []
        """In ns: kernel's end by the GPU's clock; when it was seen, and its request's end."""
        self.is_over = False

    async def measure(
        self, wait: Wait, nap_s: float, callers: int, seconds: float
    ) -> tuple[float, float]:
        """Run for so long after a warm-up; return (CPU seconds, seconds)."""
        loop = asyncio.get_running_loop()
        driver = LoopDriver(self.link, loop, wait, nap_s=nap_s, clock=time.monotonic)
        tasks = [loop.create_task(self._caller(driver)) for _ in range(callers)]
        await asyncio.sleep(WARM_UP_S)
        self.times.clear()
        cpu_s, began_at = time.thread_time(), time.monotonic()
        await asyncio.sleep(seconds)
        cpu_s, took_s = time.thread_time() - cpu_s, time.monotonic() - began_at
        self.is_over = True
        await asyncio.gather(*tasks)
        return cpu_s, took_s

    async def _caller(self, driver: LoopDriver) -> None:
        loop = asyncio.get_running_loop()
        while not self.is_over:
            answered = loop.create_future()

            def on_end(
                request: Request,
                outputs: Sequence[Output] | None,
                error: Exception | None,
                answered: asyncio.Future[None] = answered,
            ) -> None:
                ended_at = time.monotonic_ns()
                if outputs is None or request.timing is None:
                    answered.set_exception(error or AssertionError("no outputs"))
                    return
                seen_at = int(request.timing.ended_at * 1e9)
                self.times.append((end_of(outputs), seen_at, ended_at))
                answered.set_result(None)

            now = time.monotonic()
            request = Request(
                self.rig.line,
                self.layout,
                (self.payload,),
                rows=1,
                deadline=None,
                received_at=now,
                parsed_at=now,
                on_end=on_end,
            )
            self.link.submit(request, now)
            driver.step()
            await answered


def end_of(outputs: Sequence[Output]) -> int:
    """Return when the kernel ended, by the GPU's clock."""
    return int.from_bytes(outputs[0][1][8:], "little")


def delays_us(began: Times, ended: Times, offset_ns: int) -> tuple[float, float]:
    """Return p50 and p99 of the time from the GPU's clock to ours."""
    p50, p99 = np.percentile((ended - began - offset_ns) / 1000, [50, 99])
    return float(p50), float(p99)


def bare_us(rig: CudaRig, work_us: float, seconds: float) -> tuple[float, float]:
    """Return p50 and p99 of what no poller can beat: the same work, and only its event asked."""
    run, slot = Run(rig, work_us), rig.slots[0]
    lane, block = slot.lanes[0], rig.blocks.lease(run.layout.size_bytes)
    assert block is not None
    block.view[:SPIN_BYTES] = run.payload
    trial = SimpleNamespace(layout=run.layout, block=block, rows=1)
    times, before_ns = [], gpu_clock_offset_ns(rig.engine)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        slot.enqueue(lane, Batch((trial,), run.layout, 1))
        while not lane.event.is_done():
            pass
        seen_at = time.monotonic_ns()
        slot.in_flight.popleft()
        times.append((end_of(slot.outputs(lane, 0)), seen_at))
        lane.free()
    rig.blocks.release(block)
    pairs = np.array(times, np.int64)
    offset_ns = (before_ns + gpu_clock_offset_ns(rig.engine)) // 2
    return delays_us(pairs[:, 0], pairs[:, 1], offset_ns)


def one_row(
    rig: CudaRig, strategy: tuple[str, Wait, float], work_us: float, callers: int, seconds: float
) -> Row:
    """Measure one strategy at one load; `waiting_share` is still the whole share."""
    name, wait, nap_s = strategy
    run = Run(rig, work_us)
    before_ns = gpu_clock_offset_ns(rig.engine)
    cpu_s, took_s = uvloop.run(run.measure(wait, nap_s, callers, seconds))
    after_ns = gpu_clock_offset_ns(rig.engine)
    times = np.array(run.times, np.int64)
    offset_ns = (before_ns + after_ns) // 2
    share = cpu_s / took_s
    return Row(
        name,
        work_us,
        callers,
        len(times) / took_s,
        delays_us(times[:, 0], times[:, 1], offset_ns),
        delays_us(times[:, 0], times[:, 2], offset_ns),
        share,
        share,
        abs(after_ns - before_ns) / 1000,
    )


def rows(rig: CudaRig, seconds: float) -> Iterator[Row]:
    """Measure every strategy at every load."""
    full = one_row(rig, STRATEGIES[0], 1.0, 4 * NUM_SLOTS, seconds)
    request_s = full.core_share / full.rate  # no time is left to wait there
    print(f"a request costs {request_s * 1e6:.0f} us of CPU", file=sys.stderr)
    for work_us in WORKS_US:
        for callers in (1, NUM_SLOTS, 2 * NUM_SLOTS):
            for strategy in STRATEGIES:
                row = one_row(rig, strategy, work_us, callers, seconds)
                waiting = max(0.0, row.core_share - row.rate * request_s)
                yield Row(**{**asdict(row), "waiting_share": waiting})


def main(arguments: Sequence[str]) -> int:
    """Measure, print the table, write the JSON."""
    parser = argparse.ArgumentParser(prog="load.poller_wait")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--json", type=Path, default=None)
    chosen = parser.parse_args(arguments)
    end_naps_in_time()
    rig = CudaRig(num_slots=NUM_SLOTS, make_engine=lambda _: CudaSpin())
    print("| work us | in flight | strategy | seen p50 us | p99 | ended p50 us | p99", end=" ")
    print("| core | waiting | req/s |\n| ---: | ---: | --- |" + " ---: |" * 7)
    for work_us in WORKS_US:
        p50, p99 = bare_us(rig, work_us, chosen.seconds / 2)
        print(f"| {work_us:.0f} | 1 | the event alone | {p50:.0f} | {p99:.0f} | | | 100% | | |")
    measured = []
    for row in rows(rig, chosen.seconds):
        measured.append(asdict(row))
        print(
            f"| {row.work_us:.0f} | {row.callers} | {row.strategy} | {row.seen_us[0]:.0f} | "
            f"{row.seen_us[1]:.0f} | {row.ended_us[0]:.0f} | {row.ended_us[1]:.0f} | "
            f"{row.core_share:.0%} | {row.waiting_share:.0%} | {row.rate:,.0f} |",
            flush=True,
        )
    worst_us = max(row["clock_error_us"] for row in measured)
    print(f"\nclocks agree within {worst_us:.1f} us")
    if chosen.json is not None:
        chosen.json.write_text(json.dumps(measured, indent=1))
    rig.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
