"""How a client of others, in a process of its own, said that its calls were refused."""

from __future__ import annotations

from collections.abc import Mapping


def assert_refused(
    seen: Mapping[str, tuple[str, str]], wanted: Mapping[str, tuple[str, str]]
) -> None:
    """Each call by its status, with the words that are wanted in the text."""
    assert {
        what: (status.removeprefix("StatusCode."), wanted[what][1] in text)
        for what, (status, text) in seen.items()
    } == {what: (status, True) for what, (status, _) in wanted.items()}
