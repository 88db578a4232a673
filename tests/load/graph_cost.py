"""What a CUDA graph costs to capture and to launch, by the number of kernels in it.

    PYTHONPATH=proto:server:tests python3 -m load.graph_cost

The kernels are empty but for one float, and launched from Python: a plain run of an engine in C++
is cheaper for the host than the one here, a launch is not. Needs a GPU and cuda-bindings.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from statistics import median
from time import perf_counter

from cuda.bindings import driver

from headrace.device.cudart import CudartDevice, CudartStream
from helpers.standin_tensorrt import CudaWorld

NUM_KERNELS = (1, 10, 100, 400)
NUM_TRIALS = 50


def main() -> None:
    """Print a table."""
    device = CudartDevice.open(0)
    world, stream = CudaWorld(device), device.open_stream()
    memory = device.alloc_device(512)
    print(f"{device.name}; host time in us, median of {NUM_TRIALS}")
    print("kernels  plain run  capture  first launch  launch")
    for count in NUM_KERNELS:
        figures = measure(stream, partial(launch, world, stream, memory.ptr, count))
        print(f"{count:7}  " + "  ".join(f"{figure * 1e6:8.1f}" for figure in figures))
    memory.close()
    stream.close()
    world.close()
    device.close()


def launch(world: CudaWorld, stream: CudartStream, address: int, count: int) -> None:
    """Put kernels on the stream."""
    raw = driver.CUstream(int(stream.handle))
    for _ in range(count):
        world._launch_scale(raw, address, address, 1.0, 1, 0)


def measure(stream: CudartStream, work: Callable[[], None]) -> tuple[float, ...]:
    """Return seconds of the host for a plain run, a capture, a first and a later launch."""
    rows = []
    work()
    for _ in range(NUM_TRIALS):
        stream.synchronize()
        began_at = perf_counter()
        work()
        plain_s = perf_counter() - began_at
        stream.synchronize()
        began_at = perf_counter()
        graph = stream.capture(work)
        capture_s = perf_counter() - began_at
        launches_s = []
        for _ in range(2):
            began_at = perf_counter()
            graph.launch()
            launches_s.append(perf_counter() - began_at)
            stream.synchronize()
        graph.close()
        rows.append((plain_s, capture_s, *launches_s))
    return tuple(median(column) for column in zip(*rows, strict=True))


if __name__ == "__main__":
    main()
