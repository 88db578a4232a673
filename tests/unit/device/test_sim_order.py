"""Property: however the streams of the virtual device are interleaved, each one is in order."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from headrace.device.base import DevicePtr, HostPtr
from headrace.device.sim import SimDevice
from headrace.device.sim_stream import SimStream
from helpers.device_rig import Closable, array

SIZE = 8  # bytes of each stream's host block and device memory

# One operation: (kind, to, from, size); offsets are cut so that the operation stays inside.
operations = st.tuples(
    st.sampled_from(["h2d", "d2h", "add"]),
    st.integers(0, SIZE - 1),
    st.integers(0, SIZE - 1),
    st.integers(0, SIZE),
)


def add_one(memory: NDArray[np.uint8], start: int, end: int) -> Callable[[], None]:
    def work() -> None:
        memory[start:end] += 1

    return work


@given(
    programs=st.lists(st.lists(operations, max_size=12), min_size=1, max_size=4),
    turns=st.lists(st.integers(0, 3), max_size=60),
)
def test_every_interleaving_gives_each_stream_its_own_result(
    programs: list[list[tuple[str, int, int, int]]], turns: list[int]
) -> None:
    """The bytes at the end are those of running each stream's program alone, with numpy."""
    sim = SimDevice()
    streams: list[SimStream] = []
    blocks, memories = [], []
    expected: list[tuple[NDArray[np.uint8], NDArray[np.uint8]]] = []
    for number, program in enumerate(programs):
        stream, block, memory = sim.open_stream(), sim.alloc_host(SIZE), sim.alloc_device(SIZE)
        array(block)[:] = np.arange(SIZE) + 10 * number
        sim.bytes_at(memory.ptr, SIZE)[:] = 0
        host, device = array(block).copy(), np.zeros(SIZE, np.uint8)
        for kind, to, start, wanted in program:
            size = min(wanted, SIZE - max(to, start))
            if kind == "h2d":
                stream.copy_h2d(DevicePtr(memory.ptr + to), HostPtr(block.ptr + start), size)
                device[to : to + size] = host[start : start + size]
            elif kind == "d2h":
                stream.copy_d2h(HostPtr(block.ptr + to), DevicePtr(memory.ptr + start), size)
                host[to : to + size] = device[start : start + size]
            else:
                stream.launch(add_one(sim.bytes_at(memory.ptr, SIZE), to, to + size))
                device[to : to + size] += 1
        streams.append(stream)
        blocks.append(block)
        memories.append(memory)
        expected.append((host, device))
    for turn in turns:
        stream = streams[turn % len(streams)]
        if stream.items:
            sim.complete_next(stream)
    sim.run_until_idle()
    for block, memory, (host, device) in zip(blocks, memories, expected, strict=True):
        assert np.array_equal(array(block), host)
        assert np.array_equal(sim.bytes_at(memory.ptr, SIZE), device)
    things: list[Closable] = [*streams, *blocks, *memories, sim]
    for thing in things:
        thing.close()
