"""A fault laid for the virtual device: it springs once, after a number of passes."""

from __future__ import annotations

from typing import Generic, TypeVar

Load = TypeVar("Load")


class Trap(Generic[Load]):
    """What is to happen to the n-th thing from now on; any number of them may be laid."""

    def __init__(self) -> None:
        self._laid: dict[int, Load] = {}
        self._num_passed = 0

    def lay(self, load: Load, *, after: int = 0) -> None:
        """Spring once, when so many have passed unharmed."""
        self._laid[self._num_passed + after] = load

    def passed(self) -> Load | None:
        """Count one more, and return what was laid for it."""
        load = self._laid.pop(self._num_passed, None)
        self._num_passed += 1
        return load
