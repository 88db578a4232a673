"""Several requests in one run: their inputs go behind one another, their outputs back to each.

So does one request alone whose block is laid out otherwise than the batch, which is padded.

Rules
- In every input and output, the rows of a request stand behind those of the requests before it.
- Outputs of several always end up in the requests' own blocks: the lane is freed, and filled again,
  before the replies are written.
- Where a batch runs as one of more rows, the rows behind its own are zeros, not older data.
- Tensors in memory of clients are copied one by one, and by the device alone (`batch.Direct`).
- Blocks are read and written by work that the lane's event covers, or before the lane is freed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from headrace.device.base import DevicePtr, HostPtr, Stream
from headrace.engines.base import Layout
from headrace.slots.blocks import Parts

if TYPE_CHECKING:
    from headrace.slots.batch import Batch
    from headrace.slots.lane import Lane

GATHER_BELOW_BYTES: Final = 24 << 10
"""Pieces (one input of one request) below this, on average, are put together by the CPU and go over
in one copy; larger ones go over one by one. Measured on an H200 (`tests/load/gather_cost.py`), a
copy for each against the CPU and one: 32 pieces of 4 KB 124 and 38 us, 24 KB 128 and 103, 32 KB 127
and 147, 64 KB 136 and 273; 2 pieces and 8 meet at 25 and 29 KB. Outputs meet a little below."""


def gather(layout: Layout, parts: Sequence[Parts], view: memoryview) -> None:
    """Put the inputs of all requests behind one another.

    Args:
        layout: Of the batch.
        parts: Of the requests' blocks, in the order of the batch.
        view: Host memory from the layout's begin on.
    """
    padded_sizes = layout.runs_as.input_sizes
    for place, offset in enumerate(layout.input_offsets):
        at, end = offset, offset + padded_sizes[place]
        for part in parts:
            piece = part.inputs[place]
            stop = at + len(piece)
            view[at:stop] = piece
            at = stop
        if at < end:
            view[at:end] = bytes(end - at)


def scatter(layout: Layout, parts: Sequence[Parts], view: memoryview) -> None:
    """Give each request the rows of the outputs that are its own.

    Args:
        layout: Of the batch.
        parts: Of the requests' blocks, in the order of the batch.
        view: Host memory from where the layout's outputs start.
    """
    for place, offset in enumerate(layout.output_offsets):
        at = offset - layout.outputs_start
        for part in parts:
            piece = part.outputs[place][1]
            stop = at + len(piece)
            piece[:] = view[at:stop]
            at = stop


def hold(lane: Lane, layout: Layout, num_requests: int) -> None:
    """Have ready what a batch of so many requests needs on a lane that is free.

    Raises:
        EngineError: The engine cannot take these shapes.
        DeviceError: The memory cannot be had.
    """
    lane.binding_for(layout.runs_as)
    if lane.memory is None:
        return  # a unified device: the binding leads into `inputs` and `outputs`
    if is_small(layout.input_sizes, num_requests):
        lane.inputs.grow(layout.inputs_end)
    if is_small(layout.output_sizes, num_requests):
        lane.outputs.grow(layout.size_bytes - layout.outputs_start)


def copy_in(stream: Stream, lane: Lane, batch: Batch[Any]) -> None:
    """Enqueue the way of a batch's inputs into the lane's device memory.

    Raises:
        DeviceError: A copy was refused, or there is no pinned memory to gather in.
    """
    assert lane.memory is not None
    base, layout, requests = lane.memory.ptr, batch.layout, batch.requests
    if batch.is_alone and requests[0].direct is None:
        stream.copy_h2d(base, requests[0].block.ptr, layout.inputs_end)
    elif is_small(layout.input_sizes, len(requests)) and not batch.is_direct:
        lane.inputs.grow(layout.inputs_end)
        gather(layout, parts_of(batch), lane.inputs.view)
        stream.copy_h2d(base, lane.inputs.ptr, layout.inputs_end)
    else:
        _copy_each_in(stream, base, batch)


def copy_out(stream: Stream, lane: Lane, batch: Batch[Any]) -> None:
    """Enqueue the way of a batch's outputs out of the lane's device memory.

    Raises:
        DeviceError: A copy was refused, or there is no pinned memory to split them in.
    """
    assert lane.memory is not None
    base, layout, requests = lane.memory.ptr, batch.layout, batch.requests
    start = layout.outputs_start
    if batch.is_alone and requests[0].direct is None:
        to = requests[0].block.ptr
        stream.copy_d2h(HostPtr(to + start), DevicePtr(base + start), layout.size_bytes - start)
    elif is_small(layout.output_sizes, len(requests)) and not batch.is_direct:
        lane.outputs.grow(layout.size_bytes - start)
        stream.copy_d2h(lane.outputs.ptr, DevicePtr(base + start), layout.size_bytes - start)
        lane.is_unsplit = True
    else:
        _copy_each_out(stream, base, batch)


def is_small(sizes: Sequence[int], num_requests: int) -> bool:
    """Say whether the CPU is the quicker way for tensors of these bytes, of so many requests."""
    return sum(sizes) < GATHER_BELOW_BYTES * len(sizes) * num_requests


def parts_of(batch: Batch[Any]) -> list[Parts]:
    """Return where the tensors of each request lie in its block."""
    return [request.block.parts(request.layout) for request in batch.requests]


def _copy_each_in(stream: Stream, base: DevicePtr, batch: Batch[Any]) -> None:
    layout = batch.layout
    padded_sizes = layout.runs_as.input_sizes
    for place, offset in enumerate(layout.input_offsets):
        at = base + offset
        end = at + padded_sizes[place]
        for request in batch.requests:
            own = request.layout
            size = own.input_sizes[place]
            client = None if request.direct is None else request.direct.inputs.get(place)
            if client is None:
                source = request.block.ptr + own.input_offsets[place]
                stream.copy_h2d(DevicePtr(at), HostPtr(source), size)
            elif client.is_on_device:
                stream.copy_d2d(DevicePtr(at), DevicePtr(client.ptr), size)
            else:
                stream.copy_h2d(DevicePtr(at), HostPtr(client.ptr), size)
            at += size
        stream.clear(DevicePtr(at), end - at)


def _copy_each_out(stream: Stream, base: DevicePtr, batch: Batch[Any]) -> None:
    for place, offset in enumerate(batch.layout.output_offsets):
        at = base + offset
        for request in batch.requests:
            own = request.layout
            size = own.output_sizes[place]
            client = None if request.direct is None else request.direct.outputs.get(place)
            if client is None:
                to = request.block.ptr + own.output_offsets[place]
                stream.copy_d2h(HostPtr(to), DevicePtr(at), size)
            elif client.is_on_device:
                stream.copy_d2d(DevicePtr(client.ptr), DevicePtr(at), size)
            else:
                stream.copy_d2h(HostPtr(client.ptr), DevicePtr(at), size)
            at += size
