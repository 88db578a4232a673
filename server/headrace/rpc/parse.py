"""Lets protobuf parse what a client sent; what it cannot parse is the client's fault."""

from __future__ import annotations

from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from headrace.errors import RequestError
from headrace_proto.fields import LEAST_FIELD_BYTES, has_more_fields
from headrace_proto.wire import MAX_FIELDS

M = TypeVar("M", bound=Message)


def parse(kind: type[M], message: bytes) -> M:
    """Return the message.

    Handlers call this themselves: what fails in gRPC's own deserializer is answered UNKNOWN with
    the name of a Python class, and logged with a traceback as if it were a bug.

    Raises:
        RequestError: It is none of this kind.
    """
    try:
        return kind.FromString(message)
    except DecodeError as error:
        raise RequestError(
            f"the message is not a {kind.DESCRIPTOR.name}: protobuf cannot parse it"
        ) from error


def parse_counted(kind: type[M], message: bytes) -> M:
    """Return the message, as `parse`, where nothing else has counted its fields.

    Raises:
        RequestError: It is none of this kind, or has more fields than any needs: each becomes an
            object, and all other requests wait meanwhile.
    """
    if has_more_fields(message, MAX_FIELDS, free_bytes=LEAST_FIELD_BYTES * MAX_FIELDS, inner={}):
        raise RequestError(f"the {kind.DESCRIPTOR.name} has more than {MAX_FIELDS} fields")
    return parse(kind, message)
