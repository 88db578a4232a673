"""Writes docs/configuration.md out of the declarations, so that the page cannot drift."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from headrace.config.server import OPTIONS

_HEAD = """\
# Configuration

Every setting of `headrace serve` can be given in three ways, and the first that names it wins:

1. a flag, `--grpc-port=9001`;
2. a variable of the environment, `HEADRACE_GRPC_PORT=9001`;
3. a key in a TOML file, `grpc_port = 9001`, which `--config FILE` or `HEADRACE_CONFIG` names.

Switches take `--allow-metrics=false`, and alone they mean true. A setting that may be given
several times is a list in TOML; in one variable, paths are separated by `:`, restricted protocols
by `;` and numbers by `,`.
Relative paths in a file start at the file's folder. A wrong value stops the start with exit code 2
and a text that says what came, what was expected and how to mend it.

This page is made by `python -m headrace.config.reference`; a test holds it to what the code says.
"""


def markdown() -> str:
    """Return the page."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield _HEAD.rstrip()
    for group, options in groupby(OPTIONS, key=lambda option: option.group):
        yield ""
        yield f"## {group}"
        yield ""
        yield "| flag | key in TOML | value | default | meaning |"
        yield "| --- | --- | --- | --- | --- |"
        for option in options:
            flag = "<br>".join(f"`{flag}`" for flag in option.shown_flags)
            if option.declaration.is_argument:
                flag = "`MODEL_FILE …`"
            value = option.kind.expected.replace("|", "\\|")
            default = option.default_text
            shown = f"`{default}`" if default and not option.declaration.default_text else default
            yield f"| {flag} | `{option.key}` | {value} | {shown or '—'} | {option.help} |"


if __name__ == "__main__":
    print(markdown(), end="")  # noqa: T201 (its output is the page)
