"""The one tree of exceptions of the client, and how a gRPC status becomes one of them.

HeadraceClientError
├── InvalidInput              the arguments cannot become a request: nothing was sent
├── InvalidReply              what came back is not a reply of the protocol
├── ClientClosed              the client was closed before or during the call
└── CallFailed                the call ended with a gRPC status: `code` and `text`
    ├── ServerUnavailable     UNAVAILABLE: no server there, or it takes no work now
    ├── DeadlineExceeded      DEADLINE_EXCEEDED: no answer within `timeout_s`
    └── InferenceFailed       any other status of an inference; `text` is the server's
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import cast

import grpc


class HeadraceClientError(Exception):
    """Base of everything that the client raises on purpose."""


class InvalidInput(HeadraceClientError, ValueError):
    """The arguments cannot become a request; nothing was sent."""


class InvalidReply(HeadraceClientError):
    """The server's reply cannot be read as the protocol says."""


class ClientClosed(HeadraceClientError):
    """The client was closed before the call, or while it waited."""


class CallFailed(HeadraceClientError):
    """The call ended with a gRPC status other than OK.

    Attributes:
        code: The gRPC status.
        text: The server's words, or gRPC's when no server was reached.
        pushback_s: How long the server asks callers to stay away; None when it did not say.
            Infinity means: do not try this request again.
    """

    def __init__(
        self, code: grpc.StatusCode, text: str, *, pushback_s: float | None = None
    ) -> None:
        self.code = code
        self.text = text
        self.pushback_s = pushback_s
        super().__init__(f"{code.name}: {text}")


class ServerUnavailable(CallFailed):
    """No server could be reached, or the one reached takes no work now (overload, shutdown)."""


class DeadlineExceeded(CallFailed, TimeoutError):
    """No answer came within the call's `timeout_s`; the request may have run all the same."""


class InferenceFailed(CallFailed):
    """The server refused the inference, or failed at it."""


_BY_CODE: dict[grpc.StatusCode, type[CallFailed]] = {
    grpc.StatusCode.UNAVAILABLE: ServerUnavailable,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceeded,
}


def call_failed(error: grpc.RpcError, *, is_inference: bool) -> CallFailed:
    """Build the exception for a call, sync or asyncio, that ended with a status."""
    otherwise = InferenceFailed if is_inference else CallFailed
    kind = _BY_CODE.get(error.code(), otherwise)
    # Pairs in both worlds, which their type stubs do not say.
    trailing = cast("Iterable[tuple[str, str | bytes]]", error.trailing_metadata() or ())
    # Not dict(trailing): the asyncio kind has keys() and in older grpcio cannot be asked by them.
    pushback = dict([*trailing]).get("grpc-retry-pushback-ms")
    return kind(error.code(), error.details() or "", pushback_s=_pushback_s(pushback))


def _pushback_s(milliseconds: str | bytes | None) -> float | None:
    if milliseconds is None:
        return None
    try:
        value = int(milliseconds)
    except ValueError:
        return math.inf  # gRPC's rule: what cannot be read means do not retry
    return value / 1000 if value >= 0 else math.inf
