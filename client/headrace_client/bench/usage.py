"""What is wrong with the options of a run; nothing was sent."""

from __future__ import annotations


class UsageError(ValueError):
    """Options that do not go together, or a file that cannot be read."""
