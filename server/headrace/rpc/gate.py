"""Who may call what: bearer tokens, and headers that groups of RPCs ask for.

The gate is the first of the server's handlers, so that it is asked before each RPC, streaming or
not, known or not, and before the message is read. What it lets through costs a look at the
metadata.

Rules
- Names of headers are compared in lower case, which HTTP/2 makes of them. A header that decides
  must be there exactly once: of two it would be a matter of the reader which of them counts.
- Values are compared in constant time, and no text repeats one.
"""

from __future__ import annotations

import hmac
import threading
from collections.abc import Sequence
from typing import Any, Final

import grpc

from headrace.config.restriction import Restriction
from headrace.rpc import health
from headrace.rpc.status import Status, abort
from headrace.rpc.tokens import TokenFile
from headrace.rpc.wishes import Metadata
from headrace_proto.service import METHODS

RPCS: Final = {
    "health": ("ServerLive", "ServerReady", "ModelReady"),
    "metadata": ("ServerMetadata", "ModelMetadata"),
    "inference": ("ModelInfer", "ModelStreamInfer"),
    "shared-memory": (
        *("SystemSharedMemoryStatus", "SystemSharedMemoryRegister"),
        *("SystemSharedMemoryUnregister", "CudaSharedMemoryStatus"),
        *("CudaSharedMemoryRegister", "CudaSharedMemoryUnregister"),
    ),
    "model-config": ("ModelConfig",),
    "model-repository": ("RepositoryIndex", "RepositoryModelLoad", "RepositoryModelUnload"),
    "statistics": ("ModelStatistics",),
    "trace": ("TraceSetting",),
    "logging": ("LogSettings",),
}
"""Triton's groups. Its health checks of gRPC's own kind are in "health", too."""

HEALTH_CHECKS: Final = (f"/{health.SERVICE}/Check", f"/{health.SERVICE}/Watch")
AUTHORIZATION: Final = "authorization"
SCHEME: Final = "bearer"  # in any case: RFC 9110, section 11.1
REASONS: Final = ("no_token", "unknown_token", "restricted")

_NO_TOKEN: Final = "a bearer token is wanted: send the metadata 'authorization: Bearer TOKEN', once"
_UNKNOWN_TOKEN: Final = "the bearer token is not one that is taken here; ask the operator for one"


class Gate(grpc.GenericRpcHandler):
    """Refuses calls; any thread may call any method."""

    def __init__(
        self,
        restrictions: Sequence[Restriction] = (),
        tokens: TokenFile | None = None,
        *,
        asks_health_checks: bool = False,
    ) -> None:
        """Prepare.

        Args:
            restrictions: Each for other groups.
            tokens: What callers must show one of; None asks for none.
            asks_health_checks: Health checks must show one, too.
        """
        self._restrictions = {
            path: (each.header, each.value.encode())
            for each in restrictions
            for group in each.groups
            for path in paths_of(group)
        }
        self._tokens = tokens
        self._open_paths = frozenset(() if asks_health_checks else paths_of("health"))
        self._lock = threading.Lock()
        self.num_refused = dict.fromkeys(REASONS, 0)

    def check(self, path: str, metadata: Metadata) -> Status | None:
        """Return None for a call that may pass, else how it ends."""
        if self._tokens is not None and path not in self._open_paths:
            values = _values(metadata, AUTHORIZATION)
            scheme, _, token = values[0].partition(" ") if len(values) == 1 else ("", "", "")
            if scheme.lower() != SCHEME:
                return self._refuse("no_token", grpc.StatusCode.UNAUTHENTICATED, _NO_TOKEN)
            if self._tokens.find(token.strip(" ")) is None:
                unauthenticated = grpc.StatusCode.UNAUTHENTICATED
                return self._refuse("unknown_token", unauthenticated, _UNKNOWN_TOKEN)
        restriction = self._restrictions.get(path)
        if restriction is not None:
            header, wanted = restriction
            values = _values(metadata, header)
            if len(values) != 1 or not hmac.compare_digest(_encoded(values[0]), wanted):
                text = f"This protocol is restricted, expecting header '{header}'"
                return self._refuse("restricted", grpc.StatusCode.UNAVAILABLE, text)  # as Triton
        return None

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        """Answer a call that may not pass; None leaves it to the handlers behind."""
        details = handler_call_details
        status = self.check(details.method, details.invocation_metadata)
        return None if status is None else _refusing(status)

    def _refuse(self, reason: str, code: grpc.StatusCode, text: str) -> Status:
        with self._lock:
            self.num_refused[reason] += 1
        return Status(code, text, no_retry=True)  # to ask again does not help


def paths_of(group: str) -> tuple[str, ...]:
    """Return the paths of a group's RPCs."""
    paths = tuple(METHODS[name].path for name in RPCS[group])
    return (*paths, *HEALTH_CHECKS) if group == "health" else paths


def _values(metadata: Metadata, name: str) -> list[str]:
    return [
        value.decode("latin-1") if isinstance(value, bytes) else value
        for key, value in metadata
        if key.lower() == name
    ]


def _encoded(value: str) -> bytes:
    return value.encode("utf-8", "surrogatepass")


def _refusing(status: Status) -> grpc.RpcMethodHandler[Any, Any]:
    """Return a handler that fits every kind of RPC, and reads nothing."""

    async def refuse(_: Any, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        await abort(context, status)

    return grpc.stream_stream_rpc_method_handler(refuse)
