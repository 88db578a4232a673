"""The one table from our errors to gRPC's status codes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

import grpc
import grpc.aio

from headrace.errors import (
    AbandonedError,
    ConfigError,
    DeviceError,
    EngineError,
    ExistsError,
    ExpiredError,
    HeadraceError,
    NoSlotError,
    NotFoundError,
    OverloadedError,
    QueueTimeoutError,
    RequestError,
    RetiredError,
    SupersededError,
    TooLargeError,
    UnavailableError,
    UnsupportedError,
)

StatusCode = grpc.StatusCode

STATUS: dict[type[HeadraceError], StatusCode] = {
    RequestError: StatusCode.INVALID_ARGUMENT,
    NotFoundError: StatusCode.NOT_FOUND,
    ExistsError: StatusCode.ALREADY_EXISTS,
    UnsupportedError: StatusCode.UNIMPLEMENTED,
    TooLargeError: StatusCode.RESOURCE_EXHAUSTED,
    OverloadedError: StatusCode.UNAVAILABLE,  # as Triton; the operator may choose otherwise
    UnavailableError: StatusCode.UNAVAILABLE,
    RetiredError: StatusCode.UNAVAILABLE,
    NoSlotError: StatusCode.RESOURCE_EXHAUSTED,
    ExpiredError: StatusCode.DEADLINE_EXCEEDED,
    QueueTimeoutError: StatusCode.UNAVAILABLE,  # as Triton
    SupersededError: StatusCode.ABORTED,
    AbandonedError: StatusCode.CANCELLED,
    ConfigError: StatusCode.INTERNAL,
    EngineError: StatusCode.INTERNAL,
    DeviceError: StatusCode.INTERNAL,
    HeadraceError: StatusCode.INTERNAL,
}

OVERLOAD_STATUS = {
    "UNAVAILABLE": StatusCode.UNAVAILABLE,
    "RESOURCE_EXHAUSTED": StatusCode.RESOURCE_EXHAUSTED,
}

# Tells clients that retry UNAVAILABLE by themselves (KServe's do, three times) to leave it:
# https://github.com/grpc/proposal/blob/master/A6-client-retries.md#pushback
NO_RETRY = (("grpc-retry-pushback-ms", "-1"),)

# Of a text as it travels, percent-encoded. Clients refuse trailers above 8 KiB, and then the caller
# would see RESOURCE_EXHAUSTED instead of the status.
MAX_TEXT_BYTES = 4096
ENCODED_BYTE_BYTES = len("%FF")
PLAIN_BYTES = frozenset(range(0x20, 0x7F)) - {ord("%")}  # what gRPC sends as it is


@dataclass(frozen=True, slots=True)
class Status:
    """How a failed call ends."""

    code: StatusCode
    text: str
    no_retry: bool = False
    ends_stream: bool = False  # also one that takes errors as messages


def status_of(error: Exception, overload: StatusCode = StatusCode.UNAVAILABLE) -> Status:
    """Look the error up; a bug of ours tells the caller nothing about our inside."""
    if not isinstance(error, HeadraceError):
        return Status(StatusCode.INTERNAL, "internal error; the server's log has the details")
    for kind in type(error).__mro__:
        code = STATUS.get(kind)
        if code is not None:
            break
    else:  # HeadraceError itself is in the table
        raise AssertionError(type(error))
    is_overload = isinstance(error, OverloadedError)
    return Status(
        overload if is_overload else code,
        shortened(str(error)),
        is_overload,
        isinstance(error, NoSlotError),
    )


async def abort(context: grpc.aio.ServicerContext[Any, Any], status: Status) -> NoReturn:
    """End a call of grpcio with this status: raises what grpcio wants to be raised."""
    await context.abort(status.code, status.text, NO_RETRY if status.no_retry else ())
    raise AssertionError("abort raises")


def shortened(text: str) -> str:
    """Cut a text to what every client takes."""
    raw = text.encode("utf-8", "replace")  # a file's name may hold what is no Unicode
    if len(raw) * ENCODED_BYTE_BYTES <= MAX_TEXT_BYTES:
        return raw.decode()
    left_bytes = MAX_TEXT_BYTES - len("...")
    for end, byte in enumerate(raw):
        left_bytes -= 1 if byte in PLAIN_BYTES else ENCODED_BYTE_BYTES
        if left_bytes < 0:
            return raw[:end].decode("utf-8", "ignore") + "..."
    return raw.decode()
