"""Prints tables: drawn on a terminal, aligned plain text where the output is a file or a pipe."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from headrace.escape import printable


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], stream: TextIO) -> None:
    """Print a table; cells are escaped."""
    cells = [[printable(str(cell)) for cell in row] for row in rows]
    if stream.isatty():
        _draw(columns, cells, stream)
    else:
        stream.writelines(line + "\n" for line in _aligned([list(columns), *cells]))


def print_facts(facts: Sequence[tuple[str, object]], stream: TextIO) -> None:
    """Print names and values, one a line; values are escaped."""
    stream.writelines(
        line + "\n" for line in _aligned([[name, printable(str(value))] for name, value in facts])
    )


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _draw(columns: Sequence[str], cells: Sequence[Sequence[str]], stream: TextIO) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in cells:
        table.add_row(*(Text(cell) for cell in row))  # Text, so that [brackets] are no markup
    Console(file=stream, highlight=False).print(table)
