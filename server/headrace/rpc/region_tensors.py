"""The inputs of a request of which some lie in shared memory, and its request once it is checked.

Part of what is kept of a head: it says where tensors lie by names of regions, never by the regions
themselves, which may be others at the next request with the same head.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from headrace.errors import TooLargeError
from headrace.link.base import Served
from headrace.regions.part import RegionPart
from headrace.regions.table import RegionTable
from headrace.rpc.region_parameters import input_parts, output_parts
from headrace.rpc.tensors import InputTensor
from headrace.scheduling.region_request import RegionRequest
from headrace.scheduling.request import Buffer
from headrace_proto.datatypes import DATATYPES
from headrace_proto.v1 import inference_pb2 as pb

MAX_EARLY_BYTES: Final = 64 << 20  # as of messages, `--grpc-max-request-bytes`


@dataclass(frozen=True, slots=True)
class RegionTensors:
    """Where the tensors of a request are.

    Attributes:
        table: All regions.
        inputs: By their place among the request's inputs.
        early: Places of those that are read at once, before there is a block: shape tensors, which
            decide the layout, and BYTES, whose elements only the host can take.
        outputs: By their place in the engine's order.
    """

    table: RegionTable
    inputs: Mapping[int, RegionPart]
    early: Collection[int]
    outputs: Mapping[int, RegionPart]

    def merged(self, raw: Sequence[Buffer]) -> list[Buffer | RegionPart]:
        """Return the inputs in the request's order: what came in the message, and the others.

        Raises:
            RequestError: One that is read at once is not there.
        """
        return list(self._merge(iter(raw), len(raw) + len(self.inputs)))

    def in_message(self, request: pb.ModelInferRequest) -> list[InputTensor]:
        """Return the inputs that come in the message."""
        return [each for place, each in enumerate(request.inputs) if place not in self.inputs]

    def make(self, *args: Any, **more: Any) -> RegionRequest:
        """Make the request; see `RegionRequest`."""
        return RegionRequest(self.table, self.outputs, *args, **more)

    def _merge(self, raw: Iterator[Buffer], num_inputs: int) -> Iterator[Buffer | RegionPart]:
        for place in range(num_inputs):
            part = self.inputs.get(place)
            if part is None:
                yield next(raw)
            elif place in self.early:
                yield self._read(part)
            else:
                yield part

    def _read(self, part: RegionPart) -> memoryview:
        held = self.table.hold([part], 0.0)  # the request that follows tells when that was
        num_bytes = 0
        try:
            data = memoryview(bytearray(part.size_bytes))
            held[0].read_into(data, part.offset)
            num_bytes = part.size_bytes
        finally:
            self.table.release(held, num_read_bytes=num_bytes)
        return data


def regions_of(
    table: RegionTable | None,
    request: pb.ModelInferRequest,
    served: Served,
    max_early_bytes: int = MAX_EARLY_BYTES,
) -> RegionTensors | None:
    """Return where the tensors of a request are, None when all of them are in messages.

    Names that the model does not have are left for others to refuse. What is read and checked at
    once keeps others waiting meanwhile, so it is bounded as what comes in a message.

    Raises:
        TooLargeError: More than `max_early_bytes` would have to be read at once.
        UnsupportedError: Some are in shared memory, and there is no `table`.
        RequestError: A parameter that says where is wrong.
    """
    inputs = input_parts(request, is_offered=table is not None)
    outputs = output_parts(request, is_offered=table is not None)
    if table is None or not (inputs or outputs):
        return None
    spec = served.spec
    hurried = {
        each.name
        for each in spec.inputs
        if each.is_shape_tensor or not DATATYPES[each.datatype].itemsize_bytes
    }
    early = [place for place in inputs if request.inputs[place].name in hurried]
    early_bytes = sum(inputs[place].size_bytes for place in early)
    if early_bytes > max_early_bytes:
        raise TooLargeError(
            f"BYTES and shape tensors in shared memory have {early_bytes} bytes; this server takes "
            f"{max_early_bytes} a request (--grpc-max-request-bytes)"
        )
    places = {each.name: spec.output_maps[index].index for index, each in enumerate(spec.outputs)}
    return RegionTensors(
        table,
        inputs,
        early,
        {places[name]: part for name, part in outputs.items() if name in places},
    )
