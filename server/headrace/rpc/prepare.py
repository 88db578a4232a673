"""Turns the head of a ModelInferRequest, everything but id and tensors, into what to do with it.

Clients send the same head again and again, so the answer is kept by the head's bytes: the second
request with them costs one dictionary lookup instead of a parse and all checks. What differs from
request to request (id, tensors, BYTES sizes) is never part of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from headrace.engines.base import Layout, Shape
from headrace.errors import RequestError
from headrace.link.base import Catalog, Served
from headrace.regions.table import RegionTable
from headrace.rpc.cached import Submit, nowhere
from headrace.rpc.classification import UNORDERED
from headrace.rpc.parameters import check_output_parameters, check_request_parameters
from headrace.rpc.parse import parse
from headrace.rpc.region_tensors import MAX_EARLY_BYTES, RegionTensors, regions_of
from headrace.rpc.region_writer import RegionWriter
from headrace.rpc.reply import ReplyWriter, writer_of
from headrace.rpc.sequence import in_sequence
from headrace.rpc.sequence_heads import SequenceHeads
from headrace.rpc.tensors import (
    VARIABLE,
    Buffer,
    Tensor,
    check_shapes,
    check_sizes,
    check_strings,
    expected_sizes,
    here,
    match_inputs,
    quoted,
    raw_tensors,
)
from headrace.rpc.wishes import Wishes, wishes_of
from headrace.scheduling.request import Request
from headrace_proto.fields import has_more_fields
from headrace_proto.v1 import inference_pb2 as pb

MAX_HEADS = 1024  # a head is some 100 bytes; 16–64 cameras need one each
FORGOTTEN = -1  # no generation of a catalog
FIELDS_PER_TENSOR = 32  # name, datatype, contents, dimensions and parameters, of an input
FIELDS_BESIDE = 4096  # names, parameters
MAX_HEAD_BYTES = 2048  # longer ones carry typed contents or are rare


@dataclass(frozen=True, slots=True)
class Limits:
    """What one request may ask for."""

    max_tensors: int = 256
    max_elements: int = 1 << 31
    max_response_bytes: int = (1 << 31) - 1
    max_strings: int = 1 << 17


@dataclass(slots=True, eq=False)
class Prepared:
    """A checked head: which model, how its inputs map, how to reply."""

    served: Served
    num_raw: int  # tensors that come in the message
    order: tuple[int, ...]  # for each input of the model, its place in the request
    is_in_order: bool
    shapes: tuple[Shape, ...]  # as the client sent them, in the model's order
    sizes: tuple[int, ...]  # bytes expected of each; VARIABLE for BYTES
    layout: Layout | None  # None when sizes or values of tensors decide it
    rows: int
    writer: ReplyWriter
    wishes: Wishes | None  # None where the model's queue knows arrival only
    submit: Submit  # `onward`, first made part of a sequence where the model keeps state
    onward: Submit  # the link's, or what looks for a kept reply first
    regions: RegionTensors | None = None  # where some are in shared memory; never `is_in_order`
    make: Callable[..., Request] = Request

    def arrange(self, raw: Sequence[Buffer]) -> Sequence[Tensor]:
        """Put the request's tensors into the model's order and check their sizes.

        Raises:
            RequestError: A tensor has not the bytes that its shape needs.
        """
        tensors: Sequence[Tensor] = raw
        if not self.is_in_order:
            if self.regions is not None:
                tensors = self.regions.merged(raw)
            tensors = [tensors[place] for place in self.order]
        if self.layout is None or len(tensors) != len(self.sizes):
            check_sizes(self.served, self.shapes, self.sizes, tensors)
            return tensors
        for size, tensor in zip(self.sizes, tensors, strict=True):
            if len(tensor) != size:
                check_sizes(self.served, self.shapes, self.sizes, tensors)
        return tensors

    def layout_of(self, tensors: Sequence[Tensor]) -> Layout:
        """Return the layout for tensors whose sizes, or values, decide it."""
        if self.layout is not None:
            return self.layout
        pairs = zip(self.served.spec.inputs, tensors, strict=True)
        values = [bytes(here(tensor)) for spec, tensor in pairs if spec.is_shape_tensor]
        return self.served.plan(self.shapes, [len(tensor) for tensor in tensors], values)


class Preparer:
    """Checks heads and keeps the answers."""

    def __init__(
        self,
        catalog: Catalog,
        limits: Limits,
        submit_of: Callable[[Served, object], Submit] = nowhere,
        regions: RegionTable | None = None,
        *,
        max_early_bytes: int = MAX_EARLY_BYTES,
    ) -> None:
        """Keep nothing yet.

        Args:
            catalog: Says who serves what.
            limits: What one request may ask for.
            submit_of: Says where requests go to a model, in one form: all that decides the answer
                beside the tensors' bytes, None where they are not known.
            regions: Of shared memory; None where that is not offered.
            max_early_bytes: What one request may have checked at once of what lies there.
        """
        self._regions = regions
        self._max_early_bytes = max_early_bytes
        self._catalog = catalog
        self._limits = limits
        self._submit_of = submit_of
        self._kept: dict[bytes, Prepared] = {}
        self._sequences = SequenceHeads()
        self._generation = catalog.generation

    def prepare(self, head: bytes, raw: Sequence[Buffer]) -> tuple[Prepared, Sequence[Tensor]]:
        """Return what to do with a request, and its tensors in the model's order.

        Args:
            head: The message without id and raw_input_contents.
            raw: The raw_input_contents.

        Raises:
            HeadraceError: The request is wrong, or its model is not to be had.
        """
        if self._generation != self._catalog.generation:
            self._kept.clear()
            self._sequences.clear()
            self._generation = self._catalog.generation
        prepared = self._kept.get(head)
        if prepared is None or len(raw) != prepared.num_raw:
            prepared = self._sequences.find(head, len(raw))
            if prepared is None:
                return self._check(head, raw)
            self._keep(head, prepared)
        return prepared, prepared.arrange(raw)

    def forget(self) -> None:
        """Check everything anew: a name may lead elsewhere now. Any thread may call it."""
        self._generation = FORGOTTEN

    def _check(self, head: bytes, raw: Sequence[Buffer]) -> tuple[Prepared, Sequence[Tensor]]:
        self._check_fields(head)
        request = parse(pb.ModelInferRequest, head)
        self._check_counts(request)
        check_request_parameters(request.parameters)
        served = self._catalog.find(request.model_name, request.model_version)
        regions = regions_of(self._regions, request, served, self._max_early_bytes)
        order = match_inputs(request, served)
        shapes, rows = check_shapes(request, served, order, self._limits.max_elements)
        check_strings(served, shapes, self._limits.max_strings)
        outputs = _wanted_outputs(request, served)
        classes = _wanted_classes(request, served)
        form = (shapes, outputs, sorted(classes.items())) if regions is None else None
        submit = self._submit_of(served, form)
        inputs = request.inputs if regions is None else regions.in_message(request)
        tensors = raw_tensors(inputs, raw, served.spec.name)
        sizes = expected_sizes(served, shapes)
        prepared = Prepared(
            served=served,
            num_raw=len(raw),
            order=order,
            is_in_order=regions is None and order == tuple(range(len(order))),
            shapes=shapes,
            sizes=sizes,
            layout=None,
            rows=rows,
            writer=self._writer_of(served, outputs, classes, regions),
            wishes=_wishes(request, served),
            submit=in_sequence(request.parameters, served, rows, submit),
            onward=submit,
            regions=regions,
            make=Request if regions is None else regions.make,
        )
        arranged = prepared.arrange(tensors)
        if VARIABLE not in sizes and not any(spec.is_shape_tensor for spec in served.spec.inputs):
            prepared.layout = served.plan(shapes, sizes)
        if (raw or not inputs) and len(head) <= MAX_HEAD_BYTES:
            self._keep(head, prepared)
            self._sequences.keep(head, prepared)
        return prepared, arranged

    def _writer_of(
        self,
        served: Served,
        outputs: Sequence[int],
        classes: Mapping[int, int],
        regions: RegionTensors | None,
    ) -> ReplyWriter:
        max_bytes = self._limits.max_response_bytes
        if regions is None or not regions.outputs:
            return writer_of(served, outputs, classes, max_bytes)
        return RegionWriter(served, outputs, classes, regions.outputs, max_bytes)

    def _keep(self, head: bytes, prepared: Prepared) -> None:
        if len(self._kept) >= MAX_HEADS:
            self._kept.pop(next(iter(self._kept), head), None)  # another thread may have cleared it
        self._kept[head] = prepared

    def _check_fields(self, head: bytes) -> None:
        """Refuse what protobuf would make more objects of than any request needs."""
        limits = self._limits
        most = limits.max_strings + FIELDS_PER_TENSOR * limits.max_tensors + FIELDS_BESIDE
        if has_more_fields(head, most):
            raise RequestError(
                f"the request has more than {most} fields, or typed tensors that weigh as much: "
                "send raw_input_contents, or ask the operator to raise --max-strings or "
                "--max-tensors"
            )

    def _check_counts(self, request: pb.ModelInferRequest) -> None:
        limit = self._limits.max_tensors
        for what, count in (("inputs", len(request.inputs)), ("outputs", len(request.outputs))):
            if count > limit:
                raise RequestError(f"the request names {count} {what}; this server takes {limit}")


def _wanted_outputs(request: pb.ModelInferRequest, served: Served) -> tuple[int, ...]:
    """Return the indices of the outputs to send; all, when the request names none."""
    names = [spec.name for spec in served.spec.outputs]
    if not request.outputs:
        return tuple(range(len(names)))
    wanted: list[int] = []
    for tensor in request.outputs:
        if tensor.name not in names:
            raise RequestError(
                f"unexpected inference output {quoted([tensor.name])} for model "
                f"'{served.spec.name}'; it gives {quoted(names)}"
            )
        check_output_parameters(tensor.name, tensor.parameters)
        index = names.index(tensor.name)
        if index in wanted:
            raise RequestError(
                f"output '{tensor.name}' for model '{served.spec.name}' is named twice"
            )
        wanted.append(index)
    return tuple(wanted)


def _wanted_classes(request: pb.ModelInferRequest, served: Served) -> dict[int, int]:
    """Return, by the index of the output, how many classes are wanted in its place."""
    datatypes = {
        spec.name: (index, spec.datatype) for index, spec in enumerate(served.spec.outputs)
    }
    wanted: dict[int, int] = {}
    for tensor in request.outputs:
        if "classification" not in tensor.parameters:
            continue
        index, datatype = datatypes[tensor.name]
        if datatype in UNORDERED:
            raise RequestError(
                f"class result not available for output '{tensor.name}' of model "
                f"'{served.spec.name}' due to unsupported type '{datatype}': ask for the tensor"
            )
        wanted[index] = tensor.parameters["classification"].int64_param
    return wanted


def _wishes(request: pb.ModelInferRequest, served: Served) -> Wishes | None:
    """Return how the request wishes to be queued; a priority that is no level is the default."""
    wishes = wishes_of(request.parameters)
    if not served.line.has_policy:
        return None
    if served.line.is_ensemble:
        return wishes  # its models know their levels
    num_levels = 1 if served.spec.batching is None else served.spec.batching.num_priorities
    return wishes if wishes.priority <= num_levels else wishes._replace(priority=0)
