"""Settings of who is served: bearer tokens, and headers that groups of RPCs ask for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from headrace.config.option import option
from headrace.config.restriction import Restriction


@dataclass(frozen=True, kw_only=True)
class AccessSettings:
    """What callers must show."""

    GROUP: ClassVar = "Access"

    grpc_auth_token_file: Path | None = option(
        None,
        "File with the bearer tokens that are taken, one a line: TOKEN or NAME:TOKEN. It is read "
        "again when it changes. With it, calls without such a token end with UNAUTHENTICATED.",
    )
    grpc_auth_health: bool = option(
        False,
        "Ask for a token in health checks, too: grpc.health.v1, ServerLive, ServerReady and "
        "ModelReady.",
    )
    grpc_restricted_protocol: tuple[Restriction, ...] = option(
        (),
        "RPCs that are answered only to who sends the header triton-grpc-protocol-KEY with that "
        "VALUE. May be given several times. Other users of the machine can read flags: the "
        "environment or a file keeps the value from them.",
    )

    def repeated_groups(self) -> Iterator[str]:
        """Yield each protocol that is restricted more than once."""
        seen: set[str] = set()
        for restriction in self.grpc_restricted_protocol:
            for group in restriction.groups:
                if group in seen:
                    yield group
                seen.add(group)
