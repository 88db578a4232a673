"""Which inputs and outputs of a request lie in shared memory, by the parameters that say so.

Names and types are Triton's: `shared_memory_region`, `shared_memory_byte_size` and, unless it is 0,
`shared_memory_offset`.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.errors import RequestError, UnsupportedError
from headrace.escape import cited
from headrace.regions.part import RegionPart
from headrace.rpc.parameters import Parameters, wrong_type
from headrace_proto.v1 import inference_pb2 as pb

REGION, SIZE, OFFSET = "shared_memory_region", "shared_memory_byte_size", "shared_memory_offset"
NAMES = frozenset({REGION, SIZE, OFFSET})
NUMBERS = frozenset({"int64_param", "uint64_param"})


def input_parts(request: pb.ModelInferRequest, *, is_offered: bool) -> dict[int, RegionPart]:
    """Return where the inputs lie that are in shared memory, by their place in the request.

    Raises:
        UnsupportedError: There are such, and the operator has not switched it on.
        RequestError: A parameter is wrong, or the tensor comes in the message as well.
    """
    parts: dict[int, RegionPart] = {}
    for place, tensor in enumerate(request.inputs):
        part = part_of(f"input '{cited(tensor.name)}'", tensor.parameters, is_offered=is_offered)
        if part is None:
            continue
        if tensor.HasField("contents"):
            raise RequestError(
                f"input '{cited(tensor.name)}' has contents and names a shared memory region: "
                "send one"
            )
        parts[place] = part
    return parts


def output_parts(request: pb.ModelInferRequest, *, is_offered: bool) -> dict[str, RegionPart]:
    """Return where the outputs are wanted that shall go into shared memory, by their names.

    Raises:
        UnsupportedError: There are such, and the operator has not switched it on.
        RequestError: A parameter is wrong, or classes are wanted there.
    """
    parts: dict[str, RegionPart] = {}
    for tensor in request.outputs:
        part = part_of(f"output '{cited(tensor.name)}'", tensor.parameters, is_offered=is_offered)
        if part is None:
            continue
        if "classification" in tensor.parameters:
            raise RequestError(
                f"output '{cited(tensor.name)}' is wanted as classes and in shared memory: "
                "ask for one"
            )
        parts[tensor.name] = part
    return parts


def part_of(what: str, parameters: Parameters, *, is_offered: bool) -> RegionPart | None:
    """Read the parameters of a tensor; None where it is not in shared memory.

    Raises:
        UnsupportedError: It is, and the operator has not switched it on.
        RequestError: A parameter is missing, or has the wrong type or value.
    """
    if not parameters or NAMES.isdisjoint(parameters):
        return None
    if not is_offered:
        raise UnsupportedError(
            f"Client shared memory is disabled: {what} names a shared memory region; send the "
            "tensor in the message instead"
        )
    if REGION not in parameters:
        raise RequestError(f"{what} lacks the parameter '{REGION}' that goes with the others")
    region = parameters[REGION]
    kind = region.WhichOneof("parameter_choice")
    if kind != "string_param":
        came = f"parameter '{REGION}' of {what}"
        raise RequestError(wrong_type(came, kind, frozenset({"string_param"})))
    if SIZE not in parameters:
        raise RequestError(f"{what} lacks the parameter '{SIZE}'")
    offset = _number(what, OFFSET, parameters) if OFFSET in parameters else 0
    return RegionPart(region.string_param, offset, _number(what, SIZE, parameters))


def part_parameters(part: RegionPart, size_bytes: int) -> Mapping[str, pb.InferParameter]:
    """Return the parameters of an output of so many bytes that was put there."""
    parameters = {
        REGION: pb.InferParameter(string_param=part.name),
        SIZE: pb.InferParameter(int64_param=size_bytes),
    }
    if part.offset:
        parameters[OFFSET] = pb.InferParameter(int64_param=part.offset)
    return parameters


def _number(what: str, name: str, parameters: Parameters) -> int:
    parameter = parameters[name]
    kind = parameter.WhichOneof("parameter_choice")
    if kind is None or kind not in NUMBERS:
        raise RequestError(wrong_type(f"parameter '{name}' of {what}", kind, NUMBERS))
    number: int = getattr(parameter, kind)
    if not 0 <= number < 1 << 63:
        raise RequestError(f"parameter '{name}' of {what} is {number}, expected 0 to 2^63 - 1")
    return number
