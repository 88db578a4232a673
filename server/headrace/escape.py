"""Makes any text safe to show on one line of a log or a terminal."""

from __future__ import annotations

from typing import Final

MAX_CHARS: Final = 4096
"""A log line's worth; a client's name for a model may be as long as the largest message."""

SHOWN_CHARS: Final = 80
"""Of a value that a text repeats: enough to know it by."""


def cited(value: str) -> str:
    """Return a value that came from outside as a text may repeat it: on one line, and cut."""
    return printable(value, SHOWN_CHARS)


def printable(text: str, max_chars: int = MAX_CHARS) -> str:
    r"""Return the text with everything unprintable escaped, cut when it is too long.

    Unprintable are line breaks of every kind, terminal escapes, directional overrides, lone
    surrogates: what could end a line, start a false one or show another text than there is. Spaces
    and backslashes stay, so that paths can be copied; `\n` may have been two characters before.
    """
    if len(text) > max_chars:
        rest = len(text) - max_chars
        return f"{printable(text[:max_chars], max_chars)}… ({rest} more characters)"
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii")
        for char in text
    )
