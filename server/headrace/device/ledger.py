"""What a device has handed out and not got back, by name; and what happens to use after close."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Final, NoReturn

STREAM_METHODS: Final = (
    "copy_h2d",
    "copy_d2h",
    "copy_d2d",
    "clear",
    "launch",
    "record",
    "synchronize",
)
"""What nobody may call of a stream that is closed."""


class Ledger:
    """The open buffers, streams and events of one device. Any thread may write in it."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._open: dict[str, None] = {}  # a set that keeps the order of opening

    def enter(self, kind: str) -> str:
        """Note that something was opened and return its name, such as ``stream 3``."""
        name = f"{kind} {next(self._numbers)}"
        self._open[name] = None
        return name

    def strike(self, name: str) -> None:
        """Note that it was closed."""
        self._open.pop(name, None)

    def names(self) -> list[str]:
        """Return the names of what is open, oldest first."""
        return list(self._open)


def seal(thing: object, name: str, methods: Iterable[str]) -> None:
    """Make these methods raise from now on: use after close is a bug of ours.

    They are shadowed on the instance, so that an open one pays nothing for the check.
    """

    def used_after_close(*_args: object, **_kwargs: object) -> NoReturn:
        raise AssertionError(f"{name} is used after its close()")

    for method in methods:
        setattr(thing, method, used_after_close)
