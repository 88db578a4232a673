"""Calls of cuda-bindings, whose first result is a status."""

from __future__ import annotations

from typing import Any


def checked(answer: tuple[Any, ...]) -> Any:
    """Return what a call of the binding gave, after looking at its status."""
    status, *results = answer
    assert int(status) == 0, status
    return results[0] if len(results) == 1 else tuple(results) or None
