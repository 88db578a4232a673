"""What every device with graphs does, as tests; see `device_contract`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from headrace.device.base import CapturableStream, DeviceBuffer, HostBuffer
from helpers.device_rig import Rig, array

SIZE_BYTES = 64


def capturable(rig: Rig) -> CapturableStream:
    """Open a stream and hold that it can be captured."""
    stream = rig.stream()
    assert isinstance(stream, CapturableStream)
    return stream


def fetch(stream: CapturableStream, to: HostBuffer, memory: DeviceBuffer) -> Callable[[], None]:
    """Return work that copies device memory to the host."""
    return lambda: stream.copy_d2h(to.ptr, memory.ptr, SIZE_BYTES)


class GraphContract:
    """Streams whose work can be captured."""

    def test_capturing_runs_nothing(self, rig: Rig) -> None:
        """What is captured takes effect when the graph is launched, and not before."""
        stream, memory = capturable(rig), rig.memory(SIZE_BYTES)
        sent, back = rig.host(SIZE_BYTES), rig.host(SIZE_BYTES)
        array(sent)[:], array(back)[:] = 5, 9
        stream.copy_h2d(memory.ptr, sent.ptr, SIZE_BYTES)
        stream.synchronize()
        graph = rig.keep(stream.capture(fetch(stream, back, memory)))
        stream.synchronize()
        assert set(array(back).tolist()) == {9}
        graph.launch()
        stream.synchronize()
        assert set(array(back).tolist()) == {5}

    def test_a_graph_is_launched_again_and_again(self, rig: Rig) -> None:
        """Each launch works on what lies at its addresses then, in order with its stream."""
        stream, memory = capturable(rig), rig.memory(SIZE_BYTES)
        sent, back, event = rig.host(SIZE_BYTES), rig.host(SIZE_BYTES), rig.event()
        graph = rig.keep(stream.capture(fetch(stream, back, memory)))
        for number in range(20):
            array(sent)[:] = number
            stream.copy_h2d(memory.ptr, sent.ptr, SIZE_BYTES)
            graph.launch()
            stream.record(event)
            rig.wait(event)
            assert np.all(array(back) == number)

    def test_graphs_of_one_stream_keep_apart(self, rig: Rig) -> None:
        """Each does what was captured in it, whichever was captured last."""
        stream = capturable(rig)
        memories = [rig.memory(SIZE_BYTES) for _ in range(3)]
        sent, back = rig.host(SIZE_BYTES), rig.host(SIZE_BYTES)
        graphs = [rig.keep(stream.capture(fetch(stream, back, each))) for each in memories]
        for number, memory in enumerate(memories):
            array(sent)[:] = number
            stream.copy_h2d(memory.ptr, sent.ptr, SIZE_BYTES)
            stream.synchronize()
        for number, graph in enumerate(graphs):
            graph.launch()
            stream.synchronize()
            assert np.all(array(back) == number)

    def test_a_closed_graph_is_not_launched(self, rig: Rig) -> None:
        """Closing twice is silent; a launch after it is a bug of ours."""
        stream, memory, back = capturable(rig), rig.memory(SIZE_BYTES), rig.host(SIZE_BYTES)
        graph = stream.capture(fetch(stream, back, memory))
        graph.close()
        graph.close()
        with pytest.raises(AssertionError, match="after its close"):
            graph.launch()
