"""Writes ModelInferResponse: the outputs' bytes are copied once, from the block into the message.

Everything but the id and the tensors is the same for equal requests, so it is encoded once. Field
numbers are those of `inference.proto`; a test holds what is written against protobuf itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headrace.engines.base import Shape
from headrace.errors import RequestError
from headrace.link.base import Served
from headrace.rpc.classification import top_classes
from headrace.slots.batch import Output
from headrace_proto.v1 import inference_pb2 as pb
from headrace_proto.wire import delimited

ID_FIELD = 3
RAW_OUTPUT_CONTENTS_FIELD = 6
INFER_RESPONSE_FIELD = 2  # of ModelStreamInferResponse
MAX_MESSAGE_BYTES = (1 << 31) - 1  # protobuf's own limit

# Every reply on a stream is its request's last one: no model here answers more than once.
FINAL = pb.ModelInferResponse(
    parameters={"triton_final_response": pb.InferParameter(bool_param=True)}
).SerializeToString()


class ReplyWriter:
    """Writes the replies of requests that ask one model version for the same outputs."""

    def __init__(self, served: Served, outputs: Sequence[int], max_bytes: int) -> None:
        """Prepare.

        Args:
            served: The model version.
            outputs: The wanted outputs, as indices into its spec, in the order of the reply.
            max_bytes: The largest message that may be sent.
        """
        self._served = served
        self._outputs = tuple(outputs)
        self._places = tuple(served.spec.output_maps[index].index for index in outputs)
        self._max_bytes = min(max_bytes, MAX_MESSAGE_BYTES)
        spec = served.spec
        self._head = pb.ModelInferResponse(
            model_name=spec.name, model_version=str(spec.version)
        ).SerializeToString()
        # Place, shape, size and what stands before the bytes, of each output of the last reply.
        self._known: tuple[tuple[int, Shape, int, bytes], ...] = ()
        self._without_id_bytes = 0  # the whole message but for the id

    def write(self, request_id: str, outputs: Sequence[Output]) -> bytes:
        """Return the serialized reply.

        Args:
            request_id: Echoed as given.
            outputs: All outputs of the run, in the engine's order.

        Raises:
            RequestError: The reply would be larger than a message may be.
        """
        return b"".join(self._parts(request_id, outputs))

    def write_in_stream(self, request_id: str, outputs: Sequence[Output]) -> bytes:
        """Return the reply as a ModelStreamInferResponse; the tensors are copied once here, too.

        The arguments and errors are those of `write`.
        """
        return self._streamed(self._parts(request_id, outputs))

    @property
    def body_bytes(self) -> int:
        """Of the last reply: what stands at its end, behind the id."""
        return self._without_id_bytes - len(self._head)

    def rewrite(self, request_id: str, body: bytes | memoryview) -> bytes:
        """Return the reply with the body of another, for one that asked the same.

        Raises:
            RequestError: The reply would be larger than a message may be.
        """
        parts = self._around(request_id, body)
        self._check(sum(map(len, parts)))
        return b"".join(parts)

    def rewrite_in_stream(self, request_id: str, body: bytes | memoryview) -> bytes:
        """Return the reply as a ModelStreamInferResponse; as `rewrite` otherwise."""
        return self._streamed(self._around(request_id, body))

    def _around(self, request_id: str, body: bytes | memoryview) -> list[bytes | memoryview]:
        raw_id = request_id.encode()
        prefix = delimited(ID_FIELD, len(raw_id)) if raw_id else b""
        return [self._head, prefix, raw_id, body]

    def _streamed(self, parts: list[bytes | memoryview]) -> bytes:
        size_bytes = len(FINAL) + sum(map(len, parts))
        before = delimited(INFER_RESPONSE_FIELD, size_bytes)
        self._check(len(before) + size_bytes)
        return b"".join((before, FINAL, *parts))

    def _parts(self, request_id: str, outputs: Sequence[Output]) -> list[bytes | memoryview]:
        if not self._is_known(outputs):
            self._encode([outputs[place] for place in self._places])
        parts: list[bytes | memoryview] = [self._head]
        if request_id:
            raw_id = request_id.encode()
            prefix = delimited(ID_FIELD, len(raw_id))
            self._check(self._without_id_bytes + len(prefix) + len(raw_id))
            parts += (prefix, raw_id)
        for place, _, _, before in self._known:
            parts += (before, outputs[place][1])
        return parts

    def _is_known(self, outputs: Sequence[Output]) -> bool:
        """Whether shapes and sizes are those of the last reply, as they nearly always are."""
        for place, shape, size, _ in self._known:
            came, data = outputs[place]
            if came != shape or len(data) != size:
                return False
        return bool(self._known)

    def _encode(self, wanted: Sequence[Output]) -> None:
        response = self._response(wanted)
        prefixes = [delimited(RAW_OUTPUT_CONTENTS_FIELD, len(data)) for _, data in wanted]
        if prefixes:
            prefixes[0] = response.SerializeToString() + prefixes[0]
        total_bytes = sum(map(len, (self._head, *prefixes))) + sum(len(data) for _, data in wanted)
        self._check(total_bytes)
        self._without_id_bytes = total_bytes
        self._known = tuple(
            (place, shape, len(data), before)
            for place, (shape, data), before in zip(self._places, wanted, prefixes, strict=True)
        )

    def _response(self, wanted: Sequence[Output]) -> pb.ModelInferResponse:
        """Return the descriptions of the outputs."""
        response = pb.ModelInferResponse()
        for index, (shape, _) in zip(self._outputs, wanted, strict=True):
            name, datatype, client_shape = self._described(index, shape)
            response.outputs.add(name=name, datatype=datatype, shape=client_shape)
        return response

    def _described(self, index: int, shape: Shape) -> tuple[str, str, Shape]:
        """Return an output's name, datatype and the client's shape."""
        spec = self._served.spec
        output = spec.outputs[index]
        return output.name, output.datatype, spec.output_maps[index].to_client(shape)

    def _check(self, total_bytes: int) -> None:
        if total_bytes > self._max_bytes:
            raise RequestError(
                f"the reply would have {total_bytes} bytes; the limit is {self._max_bytes}: ask "
                "for fewer outputs or a smaller batch"
            )


class ClassWriter(ReplyWriter):
    """Writes replies with classes in the place of some outputs."""

    def __init__(
        self,
        served: Served,
        outputs: Sequence[int],
        classes: Mapping[int, int],
        max_bytes: int,
    ) -> None:
        """Prepare as `ReplyWriter`; `classes` says of which outputs how many are wanted."""
        super().__init__(served, outputs, max_bytes)
        self._classes = classes

    def _parts(self, request_id: str, outputs: Sequence[Output]) -> list[bytes | memoryview]:
        spec, replaced = self._served.spec, list(outputs)
        for index, num_classes in self._classes.items():
            place = spec.output_maps[index].index
            shape, data = outputs[place]
            name, datatype, client_shape = super()._described(index, shape)
            replaced[place] = top_classes(
                data,
                datatype,
                client_shape,
                num_classes,
                has_rows=spec.max_batch_size > 0,
                labels=spec.labels.get(name, ()),
            )
        return super()._parts(request_id, replaced)

    def _described(self, index: int, shape: Shape) -> tuple[str, str, Shape]:
        if index not in self._classes:
            return super()._described(index, shape)
        return self._served.spec.outputs[index].name, "BYTES", shape


def writer_of(
    served: Served, outputs: Sequence[int], classes: Mapping[int, int], max_bytes: int
) -> ReplyWriter:
    """Return what writes replies with these outputs, in their order."""
    if classes:
        return ClassWriter(served, outputs, classes, max_bytes)
    return ReplyWriter(served, outputs, max_bytes)


def in_band_error(text: str, request_id: str) -> bytes:
    """Return the ModelStreamInferResponse of a failed request: the stream stays open.

    Clients find the request by its id; they get no status code, only the text.
    """
    reply = pb.ModelInferResponse.FromString(FINAL)
    reply.id = request_id
    return pb.ModelStreamInferResponse(error_message=text, infer_response=reply).SerializeToString()
