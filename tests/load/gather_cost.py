"""What it costs to bring a batch into a GPU and back: a copy for each request, or the CPU and one.

    PYTHONPATH=proto:server:tests python3 -m load.gather_cost

Through the slot's own `copy_in` and `copy_out`, so with what Python costs. Whole times: from the
call until the stream is done and, for outputs, until they lie in the requests' blocks. Says at
which size the two ways meet. Needs a GPU and cuda-bindings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any

from headrace.device.base import Device, Stream
from headrace.engines.base import Binding, Layout
from headrace.engines.layout import plan_layout
from headrace.slots import gather
from headrace.slots.batch import Batch
from headrace.slots.blocks import Block, BlockPool
from headrace.slots.slot import Slot

SIZES_BYTES = (256, 4 << 10, 8 << 10, 16 << 10, 24 << 10, 32 << 10, 48 << 10, 64 << 10, 150_000)
NUM_REQUESTS = (2, 8, 32)
NUM_TRIALS = 60


class Nothing:
    """An execution context that computes nothing."""

    def bind(self, layout: Layout, inputs: Sequence[int], outputs: Sequence[int]) -> Binding:
        """Keep the addresses."""
        return Binding(layout, tuple(inputs), tuple(outputs))

    def enqueue(self, binding: Binding) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Nothing to close."""


@dataclass
class Piece:
    """A request of one row."""

    layout: Layout
    block: Block | None
    rows: int = 1
    direct: None = None


@dataclass(frozen=True)
class Figures:
    """Median seconds of one way."""

    in_s: float
    out_s: float


class Bench:
    """One slot and one batch of equal requests."""

    def __init__(self, device: Device, size_bytes: int, num_requests: int) -> None:
        self.stream: Stream = device.open_stream()
        self.slot = Slot(0, device, self.stream, Nothing(), clock=perf_counter)
        self.blocks = BlockPool(device, 256 << 20)
        one = _layout(1, size_bytes)
        pieces = [Piece(one, self.blocks.lease(one.size_bytes)) for _ in range(num_requests)]
        self.batch: Batch[Any] = Batch(pieces, _layout(num_requests, size_bytes), num_requests)
        self.lane = self.slot.lanes[0]

    def measure(self, limit_bytes: int, num_trials: int) -> Figures:
        """Return what one way takes: the CPU's up to `limit_bytes` a piece."""
        usual, gather.GATHER_BELOW_BYTES = gather.GATHER_BELOW_BYTES, limit_bytes  # type: ignore[misc]
        try:
            self.lane.binding_for(self.batch.layout)
            return Figures(_median(self._go_in, num_trials), _median(self._go_out, num_trials))
        finally:
            gather.GATHER_BELOW_BYTES = usual  # type: ignore[misc]

    def close(self) -> None:
        """Close everything."""
        for piece in self.batch.requests:
            self.blocks.release(piece.block)
        self.slot.close()
        self.blocks.close()

    def _go_in(self) -> None:
        gather.copy_in(self.stream, self.lane, self.batch)
        self.stream.synchronize()

    def _go_out(self) -> None:
        gather.copy_out(self.stream, self.lane, self.batch)
        self.stream.synchronize()
        if self.lane.is_unsplit:
            self.lane.is_unsplit = False
            parts = gather.parts_of(self.batch)
            gather.scatter(self.batch.layout, parts, self.lane.outputs.view)


def run(device: Device, *, num_trials: int = NUM_TRIALS) -> None:
    """Print a table for each number of requests."""
    for count in NUM_REQUESTS:
        print(f"{count} requests; us in and us out: a copy for each / the CPU and one copy")
        before: tuple[int, float] | None = None
        for size_bytes in SIZES_BYTES:
            bench = Bench(device, size_bytes, count)
            each, together = bench.measure(0, num_trials), bench.measure(1 << 40, num_trials)
            bench.close()
            print(
                f"{size_bytes:8} B  in {each.in_s * 1e6:7.1f} / {together.in_s * 1e6:7.1f}"
                f"  out {each.out_s * 1e6:7.1f} / {together.out_s * 1e6:7.1f}"
            )
            gain_s = each.in_s + each.out_s - together.in_s - together.out_s
            if before is not None and before[1] > 0 >= gain_s:
                share = before[1] / (before[1] - gain_s)
                meets = before[0] + share * (size_bytes - before[0])
                print(f"          the two meet at about {meets / 1024:.0f} KB a piece")
            before = (size_bytes, gain_s)


def main() -> None:
    """Run on GPU 0."""
    from headrace.device.cudart import CudartDevice

    device = CudartDevice.open(0)
    print(f"{device.name}; median of {NUM_TRIALS}")
    run(device)
    device.close()


def _layout(rows: int, row_bytes: int) -> Layout:
    return plan_layout(
        [(rows, row_bytes)], [rows * row_bytes], [(rows, row_bytes)], [rows * row_bytes]
    )


def _median(call: Callable[[], None], num_trials: int) -> float:
    times_s = []
    for _ in range(num_trials):
        began_at = perf_counter()
        call()
        times_s.append(perf_counter() - began_at)
    return median(times_s)


if __name__ == "__main__":
    main()
