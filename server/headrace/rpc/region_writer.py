"""Writes replies of which some tensors are in shared memory: an empty entry, and where it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headrace.link.base import Served
from headrace.regions.part import RegionPart
from headrace.rpc.region_parameters import part_parameters
from headrace.rpc.reply import ClassWriter
from headrace.slots.batch import Output
from headrace_proto.v1 import inference_pb2 as pb


class RegionWriter(ClassWriter):
    """The outputs have been written to their regions before it is asked."""

    def __init__(
        self,
        served: Served,
        outputs: Sequence[int],
        classes: Mapping[int, int],
        parts: Mapping[int, RegionPart],
        max_bytes: int,
    ) -> None:
        """Prepare as `ClassWriter`; `parts` are by the outputs' places in the engine's order."""
        super().__init__(served, outputs, classes, max_bytes)
        self._parts_of = parts
        self._sizes: tuple[int, ...] = ()  # of those outputs, in the last reply

    def _parts(self, request_id: str, outputs: Sequence[Output]) -> list[bytes | memoryview]:
        replaced = list(outputs)
        for place in self._parts_of:
            replaced[place] = (outputs[place][0], b"")
        sizes = tuple(len(outputs[place][1]) for place in self._parts_of)
        if sizes != self._sizes:
            self._sizes = sizes
            self._known = ()
        return super()._parts(request_id, replaced)

    def _response(self, wanted: Sequence[Output]) -> pb.ModelInferResponse:
        response = super()._response(wanted)
        sizes = dict(zip(self._parts_of, self._sizes, strict=True))
        for place, output in zip(self._places, response.outputs, strict=True):
            part = self._parts_of.get(place)
            if part is not None:
                for name, value in part_parameters(part, sizes[place]).items():
                    output.parameters[name].CopyFrom(value)
        return response
