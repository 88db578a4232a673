"""How a request wishes to be queued: what its parameters and its call's metadata say of that.

Parameters are part of a request's head, so that they are read once for each head. Metadata belongs
to the call; it is looked at only where a model's queue tells sources apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from headrace.errors import RequestError
from headrace.escape import printable
from headrace_proto.v1 import inference_pb2 as pb

PRIORITY, TIMEOUT, STREAM_ID = "priority", "timeout", "stream_id"  # request parameters
STREAM_ID_KEY = "headrace-stream-id"  # of the metadata; the parameter goes before it
MAX_SOURCE_CHARS = 128  # a UUID has 36; what is told apart by it is kept while requests wait

Metadata = Iterable[tuple[str, str | bytes]]


class Wishes(NamedTuple):
    """How a request wishes to be queued; see `Request`."""

    priority: int = 0
    timeout_s: float = 0.0
    source: str | None = None


def wishes_of(parameters: Mapping[str, pb.InferParameter]) -> Wishes:
    """Read a request's parameters, whose types have been checked.

    Raises:
        RequestError: A number is negative, or the id of the source too long.
    """
    if parameters.keys().isdisjoint((PRIORITY, TIMEOUT, STREAM_ID)):
        return Wishes()
    return Wishes(
        _number(parameters, PRIORITY),
        _number(parameters, TIMEOUT) / 1e6,
        _source(_value(parameters, STREAM_ID), f"parameter '{STREAM_ID}'"),
    )


def source_of(metadata: Metadata) -> str | None:
    """Return the source that a call names, None when it names none.

    Raises:
        RequestError: Its id is too long, or no printable ASCII.
    """
    for key, value in metadata:
        if key == STREAM_ID_KEY:
            text = value.decode("latin-1") if isinstance(value, bytes) else value
            if not (text.isascii() and text.isprintable()):
                raise RequestError(f"metadata '{STREAM_ID_KEY}' is no printable ASCII text")
            return _source(text, f"metadata '{STREAM_ID_KEY}'")
    return None


def _source(value: str | int, what: str) -> str | None:
    text = str(value)
    if len(text) > MAX_SOURCE_CHARS:
        raise RequestError(
            f"{what} has {len(text)} characters, expected at most {MAX_SOURCE_CHARS}: "
            f"'{printable(text[:32])}...'"
        )
    return text or None


def _number(parameters: Mapping[str, pb.InferParameter], name: str) -> int:
    number = _value(parameters, name) or 0
    assert isinstance(number, int), "its type has been checked"
    if number < 0:
        raise RequestError(f"parameter '{name}' is {number}, expected 0 or more")
    return number


def _value(parameters: Mapping[str, pb.InferParameter], name: str) -> str | int:
    """Return a parameter's value, "" when it is not there; a map's `[]` would add it."""
    if name not in parameters:
        return ""
    parameter = parameters[name]
    value: str | int = getattr(parameter, parameter.WhichOneof("parameter_choice") or "")
    return value
