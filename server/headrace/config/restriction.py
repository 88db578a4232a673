"""One `--grpc-restricted-protocol`: which RPCs ask for which header, written as Triton's."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final

GROUPS: Final = (
    *("health", "metadata", "inference", "shared-memory", "model-config"),
    *("model-repository", "statistics", "trace", "logging"),
)
"""The protocols that Triton knows by name; `rpc/gate.py` says which RPCs are in each."""

HEADER_PREFIX: Final = "triton-grpc-protocol-"
"""Triton puts it before the key, and so do its clients."""

_KEY: Final = re.compile(r"[0-9a-z_.-]+")  # what gRPC takes as the name of metadata


@dataclass(frozen=True)
class Restriction:
    """RPCs that are answered only to who sends a header with a secret value.

    Attributes:
        groups: Of GROUPS.
        key: Of the header, in lower case, without the prefix.
        value: The secret.
    """

    groups: tuple[str, ...]
    key: str
    value: str = field(repr=False)

    @property
    def header(self) -> str:
        """The header's whole name."""
        return HEADER_PREFIX + self.key


@dataclass(frozen=True)
class Restricted:
    """The kind of value: PROTOCOLS:KEY=VALUE. What came is in no error text: it holds a secret."""

    metavar: str = "PROTOCOLS:KEY=VALUE"
    expected: str = (
        f"PROTOCOLS:KEY=VALUE with PROTOCOLS out of {', '.join(GROUPS)}, separated by commas; "
        "KEY of letters, digits, '-', '_' and '.', without '-bin' at its end; VALUE of printable "
        "ASCII"
    )

    def read(self, raw: Any) -> Restriction:
        """Take a restriction or its text."""
        if isinstance(raw, Restriction):
            return raw
        protocols, colon, header = str(raw).partition(":")
        key, equals, value = header.partition("=")
        key = key.strip().lower()  # as names of headers travel
        groups = tuple(part.strip() for part in protocols.split(","))
        is_right = (
            isinstance(raw, str)
            and colon
            and equals
            and set(groups) <= set(GROUPS)
            and _KEY.fullmatch(key)
            and not key.endswith("-bin")
            # Spaces around a value are no part of it on the way.
            and (value and value.isascii() and value.isprintable() and value == value.strip())
        )
        if not is_right:
            raise ValueError
        return Restriction(groups, key, value)

    def show(self, value: Restriction) -> str:
        """Write all of it but the secret."""
        return f"{','.join(value.groups)}:{value.key}=…"
