"""Parameters: reserved names by their types, users' own by theirs, and what is not offered."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import RequestError
from headrace.rpc.parameters import (
    MAX_PARAMETERS,
    check_output_parameters,
    check_request_parameters,
)
from headrace_proto.v1 import inference_pb2 as pb

KINDS = ("bool_param", "int64_param", "uint64_param", "string_param", "double_param")
VALUES: dict[str, bool | int | float | str] = {
    "bool_param": True,
    "int64_param": -7,
    "uint64_param": 7,
    "string_param": "seven",
    "double_param": 0.7,
}
# What Triton's clients send under reserved names: perf_analyzer, the Python and the C++ client.
TAKEN = {
    ("sequence_id", "int64_param"),
    ("sequence_id", "string_param"),
    ("sequence_start", "bool_param"),
    ("sequence_end", "bool_param"),
    ("priority", "uint64_param"),
    ("priority", "int64_param"),
    ("timeout", "int64_param"),
    ("timeout", "uint64_param"),
    ("triton_enable_empty_final_response", "bool_param"),
    ("binary_data_output", "bool_param"),
    ("headers", "string_param"),
    # And what is headrace's own.
    ("stream_id", "int64_param"),
    ("stream_id", "string_param"),
}


def parameter(kind: str | None) -> pb.InferParameter:
    return pb.InferParameter() if kind is None else pb.InferParameter(**{kind: VALUES[kind]})  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [*KINDS, None])
@pytest.mark.parametrize("name", sorted({name for name, _ in TAKEN}))
def test_reserved_names_have_their_types(name: str, kind: str | None) -> None:
    """What clients send is taken; any other type is refused, with the name in the text."""
    if (name, kind) in TAKEN:
        check_request_parameters({name: parameter(kind)})
    else:
        with pytest.raises(RequestError, match=f"'{name}' .* expected"):
            check_request_parameters({name: parameter(kind)})


@pytest.mark.parametrize("kind", [*KINDS, None])
def test_users_own_parameters(kind: str | None) -> None:
    """Strings, integers, switches and floats pass; an unsigned integer and nothing do not."""
    if kind in (None, "uint64_param"):
        with pytest.raises(RequestError, match="parameter 'mine'"):
            check_request_parameters({"mine": parameter(kind)})
    else:
        check_request_parameters({"mine": parameter(kind)})


@given(st.text(max_size=20))
def test_the_prefix_of_the_protocol_is_not_for_users(rest: str) -> None:
    """A name that begins with triton_ is known or refused, never silently ignored."""
    name = f"triton_{rest}"
    if name != "triton_enable_empty_final_response":
        with pytest.raises(RequestError, match="reserved"):
            check_request_parameters({name: parameter("bool_param")})


def test_texts_say_what_came_and_what_was_expected() -> None:
    """Types are named as clients know them, not as protobuf's members."""
    with pytest.raises(RequestError) as caught:
        check_request_parameters({"sequence_id": parameter("double_param")})
    assert str(caught.value) == (
        "parameter 'sequence_id' has a value of type double, expected int64 or string"
    )


def test_how_many_there_may_be() -> None:
    """Far more than anybody sends: each takes its time to check."""
    some = {f"own_{number}": parameter("int64_param") for number in range(MAX_PARAMETERS)}
    check_request_parameters(some)
    with pytest.raises(RequestError, match=r"has 1025 parameters; this server takes 1024"):
        check_request_parameters({**some, "one_more": parameter("int64_param")})


@pytest.mark.parametrize("count", [0, -1, -(1 << 63)])
def test_classes_are_a_positive_number(count: int) -> None:
    """Of the protocol's type."""
    check_output_parameters("y", {"classification": pb.InferParameter(int64_param=1)})
    with pytest.raises(RequestError, match=rf"'classification' of output 'y' is {count}, expected"):
        check_output_parameters("y", {"classification": pb.InferParameter(int64_param=count)})
    with pytest.raises(RequestError, match=r"'classification' of output 'y'.*expected int64"):
        check_output_parameters("y", {"classification": parameter("string_param")})


def test_binary_data_changes_nothing_here() -> None:
    """Outputs are always raw here, so what the HTTP protocol needs is only checked for its type."""
    check_output_parameters("y", {"binary_data": parameter("bool_param")})
    with pytest.raises(RequestError, match="'binary_data' of output 'y'"):
        check_output_parameters("y", {"binary_data": parameter("int64_param")})


def test_unknown_parameters_of_tensors_are_ignored() -> None:
    """As Triton does: clients annotate tensors for their own proxies."""
    check_output_parameters("y", {"colour": parameter("string_param")})
