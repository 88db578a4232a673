"""Server reflection over two descriptor pools: our private one and protobuf's default."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
from google.protobuf import descriptor_pool
from grpc_reflection.v1alpha import reflection

from headrace.rpc import health
from headrace_proto.pool import POOL
from headrace_proto.service import SERVICE

SERVICES = (SERVICE, health.SERVICE, reflection.SERVICE_NAME)


class _BothPools:
    """Asks our pool first; the reflection servicer uses a pool by these names only."""

    def __init__(self) -> None:
        self._pools: tuple[Any, ...] = (POOL, descriptor_pool.Default())

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def find(*arguments: Any) -> Any:
            for pool in self._pools[:-1]:
                try:
                    return getattr(pool, name)(*arguments)
                except KeyError:
                    continue
            return getattr(self._pools[-1], name)(*arguments)

        return find


def enable_reflection(server: grpc.aio.Server) -> None:
    """Let clients list the services and read their descriptors."""
    reflection.enable_server_reflection(SERVICES, server, pool=_BothPools())  # type: ignore[arg-type]
