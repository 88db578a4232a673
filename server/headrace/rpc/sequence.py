"""Which part of which sequence a request is, and what its model is told of that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

from headrace.errors import RequestError
from headrace.escape import printable
from headrace.link.base import Served
from headrace.rpc.cached import Submit
from headrace.scheduling.request import Request
from headrace.scheduling.sequence import Part, unnamed
from headrace_proto.v1 import inference_pb2 as pb

MAX_ID_CHARS = 128  # Triton's bound for ids that are text


def in_sequence(
    parameters: Mapping[str, pb.InferParameter], served: Served, rows: int, submit: Submit
) -> Submit:
    """Return where requests with these parameters go: `submit`, first made part of a sequence.

    Args:
        parameters: The request's, whose types have been checked.
        served: The model; one that keeps no state takes them and ignores them, as in Triton.
        rows: Of the request.
        submit: Where requests to this model go.

    Raises:
        RequestError: It names no sequence, the model takes no such id, or it has several rows.
    """
    spec = served.spec
    if spec.sequence is None:
        return submit
    if rows != 1:
        raise RequestError(
            f"inference request to model '{spec.name}' must specify batch-size 1 due to "
            f"requirements of sequence batcher; got {rows} rows"
        )
    sequence_id = _id(parameters)
    if not sequence_id:
        raise unnamed(spec.name)
    is_start, is_end = (
        name in parameters and parameters[name].bool_param
        for name in ("sequence_start", "sequence_end")
    )
    values = spec.sequence.values(sequence_id, is_start=is_start, is_end=is_end)
    return partial(_submit_part, submit, Part(sequence_id, is_start, is_end), values)


def _submit_part(
    submit: Submit, part: Part, hidden: Iterable[tuple[int, bytes]], request: Request, now: float
) -> None:
    """Add the inputs that the client does not send, by rising place, and hand the request over."""
    request.part = part
    tensors = list(request.tensors)
    for index, value in hidden:
        tensors.insert(index, value)
    request.tensors = tensors
    submit(request, now)


def _id(parameters: Mapping[str, pb.InferParameter]) -> int | str:
    """Return the id, 0 where there is none."""
    if "sequence_id" not in parameters:
        return 0
    parameter = parameters["sequence_id"]
    if parameter.WhichOneof("parameter_choice") != "string_param":
        return parameter.int64_param
    text = parameter.string_param
    if len(text) > MAX_ID_CHARS:
        raise RequestError(
            f"parameter 'sequence_id' has {len(text)} characters, expected at most "
            f"{MAX_ID_CHARS}: '{printable(text[:32])}...'"
        )
    return text
