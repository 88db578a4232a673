"""Checks the parameters of requests, inputs and requested outputs.

Names and types are those that Triton's clients send. What changes the answer and is not offered is
refused with a text; what only steers how the answer comes about is accepted.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.errors import RequestError
from headrace.escape import cited
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

TYPE_NAMES = {
    "bool_param": "bool",
    "int64_param": "int64",
    "uint64_param": "uint64",
    "string_param": "string",
    "double_param": "double",
}

Parameters = Mapping[str, pb.InferParameter]

MAX_PARAMETERS = 1024  # of a request: each takes 2 us to check, and a message has room for 60,000


def check_request_parameters(parameters: Parameters) -> None:
    """Refuse request parameters of the wrong type, reserved names that mean nothing, and very many.

    Raises:
        RequestError: Names the parameter, what came and what was expected.
    """
    if len(parameters) > MAX_PARAMETERS:
        raise RequestError(
            f"the request has {len(parameters)} parameters; this server takes {MAX_PARAMETERS}"
        )
    for name, value in parameters.items():
        kind = value.WhichOneof("parameter_choice")
        allowed = RESERVED.get(name)
        if allowed is None:
            if name.startswith("triton_"):
                raise RequestError(
                    f"parameter '{cited(name)}' is not known: names that start with triton_ are "
                    "reserved"
                )
            allowed = USER_TYPES
        if kind not in allowed:
            raise RequestError(wrong_type(f"parameter '{cited(name)}'", kind, allowed))


def check_output_parameters(name: str, parameters: Parameters) -> None:
    """Check what is not of shared memory (`region_parameters.py`); ignore what is not known.

    Raises:
        RequestError: A parameter has the wrong type or value.
    """
    if not parameters:
        return
    if "classification" in parameters:
        parameter = parameters["classification"]
        kind = parameter.WhichOneof("parameter_choice")
        what = f"parameter 'classification' of output '{cited(name)}'"
        if kind != "int64_param":
            raise RequestError(wrong_type(what, kind, frozenset({"int64_param"})))
        if parameter.int64_param < 1:
            raise RequestError(f"{what} is {parameter.int64_param}, expected 1 or more classes")
    if "binary_data" in parameters:
        kind = parameters["binary_data"].WhichOneof("parameter_choice")
        if kind != "bool_param":
            what = f"parameter 'binary_data' of output '{cited(name)}'"
            raise RequestError(wrong_type(what, kind, frozenset({"bool_param"})))


def wrong_type(what: str, kind: str | None, allowed: frozenset[str]) -> str:
    """Return the text for a parameter of this kind, where only others are taken."""
    got = TYPE_NAMES[kind] if kind else "nothing"
    expected = " or ".join(sorted(TYPE_NAMES[name] for name in allowed))
    return f"{what} has a value of type {got}, expected {expected}"
