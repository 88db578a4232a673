"""A request whose tensors lie, or are wanted, in memory that the client shares with the server.

Rules
- Its regions are in use from the moment it is made until it has ended, or was never accepted.
- Inputs go from the region into the block in one copy, when the block is leased; outputs from the
  block into the region in one copy, when the work is done and before the reply leaves.
- Large ones in regions that are pinned, and all in memory of the device, go past the block: the
  device copies them by work that the lane's event covers, so that a region is in use for as long.
- A caller that has left gets nothing written any more, but by what the device does already.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from headrace.engines.base import Layout
from headrace.errors import RequestError
from headrace.regions.part import RegionPart
from headrace.regions.region import Region, shown
from headrace.regions.table import RegionTable
from headrace.scheduling.line import Line
from headrace.scheduling.request import Buffer, Request
from headrace.slots.batch import ClientPtr, Direct, Output
from headrace.slots.blocks import Block
from headrace.slots.gather import GATHER_BELOW_BYTES


class RegionRequest(Request):
    """See the rules above."""

    __slots__ = (
        "_held",
        "_num_direct_bytes",
        "_num_read_bytes",
        "_num_written_bytes",
        "_table",
        "_wanted",
        "direct",
    )

    def __init__(
        self,
        table: RegionTable,
        wanted: Mapping[int, RegionPart],
        line: Line,
        layout: Layout,
        tensors: Sequence[Any],
        *,
        parsed_at: float,
        **more: Any,
    ) -> None:
        """Take the regions into use.

        Args:
            table: All regions.
            wanted: Which outputs, by their place in the engine's order, go where.
            line: As all that is not named here, see `Request`.
            layout: Of the request.
            tensors: The inputs' bytes in the engine's order, or the parts that they lie in.
            parsed_at: Clock seconds.
            **more: What else a request has.

        Raises:
            RequestError: A region is not there, or too small.
        """
        super().__init__(line, layout, tensors, parsed_at=parsed_at, **more)
        if layout.output_shapes is not None:
            for place, part in wanted.items():
                _check_room(part, layout.output_sizes[place])
        parts = [tensor for tensor in tensors if isinstance(tensor, RegionPart)]
        self.direct = None
        self._table = table
        self._wanted = wanted
        self._num_read_bytes = self._num_written_bytes = self._num_direct_bytes = 0
        self._held = table.hold((*parts, *wanted.values()), parsed_at)
        if layout.output_shapes is None:
            self._refuse_what_the_host_writes()

    def stage(self, block: Block) -> None:
        """Make the one host copy into the block: from the message, or from the regions.

        Raises:
            RequestError: A region's memory has become shorter.
        """
        view, regions = block.view, iter(self._held)
        inputs: dict[int, ClientPtr] = {}
        sources: Sequence[Buffer | RegionPart] = self.tensors
        offsets = self.layout.input_offsets
        for place, (offset, source) in enumerate(zip(offsets, sources, strict=True)):
            room = view[offset : offset + len(source)]
            if not isinstance(source, RegionPart):
                room[:] = source
                continue
            region = next(regions)
            ptr = _direct_ptr(region, source.offset, len(source))
            if ptr is None:
                region.read_into(room, source.offset)
                self._num_read_bytes += len(source)
            else:
                inputs[place] = ptr
                self._num_direct_bytes += len(source)
        self._go_directly(inputs)
        if self.layout.padded_to is not None:
            self._clear_padding(view, self.layout.padded_to)
        self.block = block
        self.tensors = ()

    def hand_over(self) -> Sequence[Buffer]:
        """Copy what lies in regions, and return it with the rest.

        Raises:
            RequestError: A region's memory has become shorter.
        """
        regions = iter(self._held)
        tensors: list[Any] = list(super().hand_over())  # or the parts that they lie in
        for index, source in enumerate(tensors):
            if isinstance(source, RegionPart):
                tensors[index] = room = memoryview(bytearray(source.size_bytes))
                next(regions).read_into(room, source.offset)
                self._num_read_bytes += source.size_bytes
        return tensors

    def end(self, outputs: Sequence[Output] | None, error: Exception | None) -> None:
        """End the request once its outputs are where they are wanted, and its regions let go of."""
        if outputs is not None:
            try:
                self._write(outputs)
            except RequestError as fault:
                outputs, error = None, fault
        self.let_go()  # so that a client that has its reply finds nothing of it in use
        super().end(outputs, error)

    def forfeit(self) -> None:
        """Give the block up for good, and the regions that the failed device may still use."""
        super().forfeit()
        if self.direct is not None:
            self._held = []

    def let_go(self) -> None:
        """End the use of the regions; a second call does nothing."""
        held, self._held = self._held, []
        if held:
            self._table.release(
                held,
                num_read_bytes=self._num_read_bytes,
                num_written_bytes=self._num_written_bytes,
                num_direct_bytes=self._num_direct_bytes,
            )

    def _refuse_what_the_host_writes(self) -> None:
        """Hold that no output is wanted in device memory: only the run tells their sizes."""
        for region, _, part in self._targets():
            if region.is_on_device:
                self.let_go()
                raise RequestError(
                    f"an output is wanted in {shown(part.name)}, which lies in a GPU's memory, but "
                    "this model's outputs have sizes that only the run tells, or come from several "
                    "models: ask for it in the message, or in system shared memory"
                )

    def _go_directly(self, inputs: Mapping[int, ClientPtr]) -> None:
        """Note what the device copies itself: these inputs, and outputs of a size that is known."""
        outputs: dict[int, ClientPtr] = {}
        if self.layout.output_shapes is not None:
            for region, place, part in self._targets():
                ptr = _direct_ptr(region, part.offset, self.layout.output_sizes[place])
                if ptr is not None:
                    outputs[place] = ptr
        if inputs or outputs:
            self.direct = Direct(inputs, outputs)

    def _write(self, outputs: Sequence[Output]) -> None:
        direct: Mapping[int, ClientPtr] = {} if self.direct is None else self.direct.outputs
        for region, place, part in self._targets():
            data = outputs[place][1]
            _check_room(part, len(data))
            if place in direct:
                region.check(part.offset + len(data))  # or nobody sees what was written
                self._num_direct_bytes += len(data)
            else:
                region.write(data, part.offset)
                self._num_written_bytes += len(data)

    def _targets(self) -> Iterator[tuple[Region, int, RegionPart]]:
        """Return each output's region, held behind those of the inputs, its place and its part."""
        held = self._held[len(self._held) - len(self._wanted) :]
        for region, (place, part) in zip(held, self._wanted.items(), strict=True):
            yield region, place, part


def _direct_ptr(region: Region, offset: int, size_bytes: int) -> ClientPtr | None:
    """Return where the device copies these bytes itself, None where the host does.

    Raises:
        RequestError: The region's memory has become shorter.
    """
    is_on_device = region.is_on_device
    if region.pin is None or (size_bytes < GATHER_BELOW_BYTES and not is_on_device):
        return None
    region.check(offset + size_bytes)
    return ClientPtr(region.pin.ptr + offset, is_on_device)


def _check_room(part: RegionPart, size_bytes: int) -> None:
    if size_bytes > part.size_bytes:
        raise RequestError(
            f"an output of {size_bytes} bytes does not fit into the {part.size_bytes} bytes that "
            f"are given for it in {shown(part.name)}"
        )
