"""CUDA graphs: captures what is put on a stream, to launch it again as a whole.

The binding comes as an argument, because one file alone imports it.

Rules
- A capture that was begun is ended, whatever happens in it; else the stream stays unusable.
- The mode is thread-local: other threads may allocate and wait meanwhile. Begin and end are on one
  thread.
- A graph without nodes is refused: its launch would succeed and leave old outputs in place.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from headrace.device.ledger import seal
from headrace.errors import DeviceError

if TYPE_CHECKING:
    from headrace.device.cudart import CudartDevice, CudartStream


class CudartGraph:
    """An instantiated graph of one stream."""

    def __init__(self, rt: Any, device: CudartDevice, stream: CudartStream, graph: Any) -> None:
        self._raw = device.call("instantiating a graph", rt.cudaGraphInstantiate, graph, 0)
        self._launch = partial(rt.cudaGraphLaunch, self._raw, stream.raw)
        self._success = rt.cudaError_t.cudaSuccess
        self._destroy = rt.cudaGraphExecDestroy
        self._device = device
        self._is_closed = False
        self.name = device.ledger.enter("graph")

    def launch(self) -> None:
        """Enqueue all of it behind what is on the stream."""
        status = self._launch()[0]
        if status is not self._success:
            raise self._device.fault(status, "launching a graph")

    def close(self) -> None:
        """Destroy the graph; a second call does nothing."""
        if not self._is_closed:
            self._is_closed = True
            self._device.ledger.strike(self.name)
            seal(self, self.name, ["launch"])
            self._device.release("closing a graph", self._destroy, self._raw)


def capture(
    rt: Any, device: CudartDevice, stream: CudartStream, work: Callable[[], None]
) -> CudartGraph:
    """Capture what `work` enqueues on the stream; see `CapturableStream.capture`."""
    mode = rt.cudaStreamCaptureMode.cudaStreamCaptureModeThreadLocal
    device.call("beginning a capture", rt.cudaStreamBeginCapture, stream.raw, mode)
    try:
        work()
    except BaseException:
        graph = rt.cudaStreamEndCapture(stream.raw)[1]
        if graph is not None:
            rt.cudaGraphDestroy(graph)
        rt.cudaGetLastError()  # it is the error of `work` that tells, not that of the end
        raise
    status, graph = rt.cudaStreamEndCapture(stream.raw)
    if status is not rt.cudaError_t.cudaSuccess:
        raise device.fault(status, "ending a capture")
    try:
        num_nodes = device.call("counting a graph's nodes", rt.cudaGraphGetNodes, graph)[-1]
        if not num_nodes:
            raise DeviceError("nothing was captured: the work enqueued nothing on its stream")
        captured = CudartGraph(rt, device, stream, graph)
    finally:
        device.release("closing what was captured", rt.cudaGraphDestroy, graph)
    device.call("uploading a graph", rt.cudaGraphUpload, captured._raw, stream.raw)
    return captured
