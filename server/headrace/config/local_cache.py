"""One `--cache-config`: which cache, and how large, written as Triton's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

START: Final = "local,size="
MAX_BYTES: Final = 2**50


@dataclass(frozen=True)
class LocalCache:
    """Replies in the memory of this process.

    Attributes:
        max_bytes: All of them together; 0 for none.
    """

    max_bytes: int


@dataclass(frozen=True)
class LocalCacheKind:
    """The kind of value: local,size=BYTES, or the bytes alone."""

    metavar: str = "local,size=BYTES"
    expected: str = (
        f"local,size=BYTES, from 0 to {MAX_BYTES}: there is no cache but 'local', and nothing but "
        "its size to set"
    )

    def read(self, raw: Any) -> LocalCache:
        """Take a cache, Triton's text or the bytes."""
        if isinstance(raw, LocalCache):
            return raw
        is_number = isinstance(raw, int) and not isinstance(raw, bool)
        digits = str(raw).strip().removeprefix(START)
        if not (is_number or isinstance(raw, str)) or not digits.isascii() or len(digits) > 19:
            raise ValueError
        max_bytes = int(digits)
        if not 0 <= max_bytes <= MAX_BYTES:
            raise ValueError
        return LocalCache(max_bytes)

    def show(self, value: LocalCache) -> str:
        """Write Triton's text."""
        return f"{START}{value.max_bytes}"
