"""Lets replies leave in the order in which their requests came: `preserve_ordering`.

Batches end in different slots, so a reply may be there before an older one is. It waits in its
block until everything older has been answered. Errors leave at once, and what ended in one, or was
given up by its caller, is waited for no more.

Rules
- Pure bookkeeping, called by the thread that steps the core.
- Every request that came in leaves, by `reply` or by `leave`; the replies that this lets through
  are returned, oldest first.
- What waits is bounded: each reply that is held counts as a place in the queue.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from headrace.scheduling.request import Request
from headrace.slots.batch import Output

Reply = tuple[Request, Sequence[Output]]


class Ordering:
    """The requests of one model that are in, and the replies that are held back."""

    __slots__ = ("_in", "num_held")

    def __init__(self) -> None:
        # By arrival; the outputs of those that are answered and not yet let through.
        self._in: OrderedDict[Request, Sequence[Output] | None] = OrderedDict()
        self.num_held = 0

    def __len__(self) -> int:
        """How many requests are in."""
        return len(self._in)

    def come(self, request: Request) -> None:
        """Give an admitted request its place."""
        self._in[request] = None

    def reply(self, request: Request, outputs: Sequence[Output]) -> list[Reply]:
        """Take a reply in; return all that may leave now."""
        self._in[request] = outputs
        self.num_held += 1
        return self._let_through()

    def holds(self, request: Request) -> bool:
        """Say whether the reply of a request is held back."""
        return self._in.get(request) is not None

    def leave(self, request: Request) -> list[Reply]:
        """Wait for a request no more; return all that may leave now. A second call does nothing."""
        if self._in.pop(request, None) is not None:
            self.num_held -= 1
        return self._let_through()

    def _let_through(self) -> list[Reply]:
        replies: list[Reply] = []
        while self._in:
            request, outputs = next(iter(self._in.items()))
            if outputs is None:
                break
            del self._in[request]
            self.num_held -= 1
            replies.append((request, outputs))
        return replies
