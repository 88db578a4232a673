"""Checks the parameters of requests, inputs and requested outputs.

Names and types are those that Triton's clients send. What changes the answer and is not offered is
refused with a text; what only steers how the answer comes about is accepted.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.errors import RequestError, UnsupportedError
from headrace_proto.v1 import inference_pb2 as pb

# Which member of InferParameter a reserved request parameter may use.
RESERVED: Mapping[str, frozenset[str]] = {
    "sequence_id": frozenset({"int64_param", "string_param"}),
    "sequence_start": frozenset({"bool_param"}),
    "sequence_end": frozenset({"bool_param"}),
    "priority": frozenset({"uint64_param", "int64_param"}),
    "timeout": frozenset({"int64_param", "uint64_param"}),  # microseconds
    "stream_id": frozenset({"int64_param", "string_param"}),  # ours, not Triton's
    "triton_enable_empty_final_response": frozenset({"bool_param"}),
    "binary_data_output": frozenset({"bool_param"}),
    "headers": frozenset({"string_param"}),
}
USER_TYPES = frozenset({"bool_param", "int64_param", "string_param", "double_param"})

SHARED_MEMORY = frozenset(
    {"shared_memory_region", "shared_memory_byte_size", "shared_memory_offset"}
)
TYPE_NAMES = {
    "bool_param": "bool",
    "int64_param": "int64",
    "uint64_param": "uint64",
    "string_param": "string",
    "double_param": "double",
}

Parameters = Mapping[str, pb.InferParameter]


def check_request_parameters(parameters: Parameters) -> None:
    """Refuse request parameters of the wrong type, and reserved names that mean nothing.

    Raises:
        RequestError: Names the parameter, what came and what was expected.
    """
    for name, value in parameters.items():
        kind = value.WhichOneof("parameter_choice")
        allowed = RESERVED.get(name)
        if allowed is None:
            if name.startswith("triton_"):
                raise RequestError(
                    f"parameter '{name}' is not known: names that start with triton_ are reserved"
                )
            allowed = USER_TYPES
        if kind not in allowed:
            raise RequestError(_wrong_type(f"parameter '{name}'", kind, allowed))


def check_input_parameters(name: str, parameters: Parameters) -> None:
    """Refuse shared memory, which this server does not offer; ignore what it does not know.

    Raises:
        UnsupportedError: The input lies in shared memory.
    """
    if not SHARED_MEMORY.isdisjoint(parameters):
        raise _no_shared_memory(f"input '{name}'")


def check_output_parameters(name: str, parameters: Parameters) -> None:
    """Refuse shared memory, which this server does not offer.

    Raises:
        UnsupportedError: The output is wanted in shared memory.
        RequestError: A parameter has the wrong type or value.
    """
    if not parameters:
        return
    if not SHARED_MEMORY.isdisjoint(parameters):
        raise _no_shared_memory(f"output '{name}'")
    if "classification" in parameters:
        parameter = parameters["classification"]
        kind = parameter.WhichOneof("parameter_choice")
        what = f"parameter 'classification' of output '{name}'"
        if kind != "int64_param":
            raise RequestError(_wrong_type(what, kind, frozenset({"int64_param"})))
        if parameter.int64_param < 1:
            raise RequestError(f"{what} is {parameter.int64_param}, expected 1 or more classes")
    if "binary_data" in parameters:
        kind = parameters["binary_data"].WhichOneof("parameter_choice")
        if kind != "bool_param":
            what = f"parameter 'binary_data' of output '{name}'"
            raise RequestError(_wrong_type(what, kind, frozenset({"bool_param"})))


def _wrong_type(what: str, kind: str | None, allowed: frozenset[str]) -> str:
    got = TYPE_NAMES[kind] if kind else "nothing"
    expected = " or ".join(sorted(TYPE_NAMES[name] for name in allowed))
    return f"{what} has a value of type {got}, expected {expected}"


def _no_shared_memory(what: str) -> UnsupportedError:
    return UnsupportedError(
        f"Client shared memory is disabled: {what} names a shared memory region; send the tensor "
        "in the message instead"
    )
