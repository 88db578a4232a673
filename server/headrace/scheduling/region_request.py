"""A request whose tensors lie, or are wanted, in memory that the client shares with the server.

Rules
- Its regions are in use from the moment it is made until it has ended, or was never accepted.
- Inputs go from the region into the block in one copy, when the block is leased; outputs from the
  block into the region in one copy, when the work is done and before the reply leaves.
- A caller that has left gets nothing written any more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from headrace.engines.base import Layout
from headrace.errors import RequestError
from headrace.regions.part import RegionPart
from headrace.regions.table import Region, RegionTable, shown
from headrace.scheduling.line import Line
from headrace.scheduling.request import Buffer, Request
from headrace.slots.batch import Output
from headrace.slots.blocks import Block


class RegionRequest(Request):
    """See the rules above."""

    __slots__ = ("_held", "_num_read_bytes", "_num_written_bytes", "_table", "_wanted")

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
        self._table = table
        self._wanted = wanted
        self._num_read_bytes = self._num_written_bytes = 0
        self._held = table.hold((*parts, *wanted.values()), parsed_at)

    def stage(self, block: Block) -> None:
        """Make the one host copy into the block: from the message, or from the regions.

        Raises:
            RequestError: A region's memory has become shorter.
        """
        view, regions = block.view, iter(self._held)
        sources: Sequence[Buffer | RegionPart] = self.tensors
        for offset, source in zip(self.layout.input_offsets, sources, strict=True):
            room = view[offset : offset + len(source)]
            if isinstance(source, RegionPart):
                next(regions).read_into(room, source.offset)
                self._num_read_bytes += source.size_bytes
            else:
                room[:] = source
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
        """End the request once its outputs are where they are wanted."""
        if outputs is not None:
            try:
                self._write(outputs)
            except RequestError as fault:
                outputs, error = None, fault
        try:
            super().end(outputs, error)
        finally:
            self.let_go()

    def let_go(self) -> None:
        """End the use of the regions; a second call does nothing."""
        held, self._held = self._held, []
        if held:
            self._table.release(
                held,
                num_read_bytes=self._num_read_bytes,
                num_written_bytes=self._num_written_bytes,
            )

    def _write(self, outputs: Sequence[Output]) -> None:
        for region, (place, part) in zip(self._outputs_held(), self._wanted.items(), strict=True):
            data = outputs[place][1]
            _check_room(part, len(data))
            region.write(data, part.offset)
            self._num_written_bytes += len(data)

    def _outputs_held(self) -> Iterator[Region]:
        """Return the regions of the outputs, which were taken behind those of the inputs."""
        return iter(self._held[len(self._held) - len(self._wanted) :])


def _check_room(part: RegionPart, size_bytes: int) -> None:
    if size_bytes > part.size_bytes:
        raise RequestError(
            f"an output of {size_bytes} bytes does not fit into the {part.size_bytes} bytes that "
            f"are given for it in {shown(part.name)}"
        )
