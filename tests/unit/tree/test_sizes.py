"""One file is one idea: a module stays under 300 lines and a function under 40."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

import pytest

from helpers.tree import PACKAGES, REPOSITORY, modules, syntax

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAX_MODULE_LINES = 300
MAX_FUNCTION_LINES = 40

# Each with the reason why it is longer; an entry that is no longer needed fails the test.
LONGER_MODULES: dict[str, str] = {}
LONGER_FUNCTIONS: dict[str, str] = {}


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Give (name, lines of body and signature without the docstring) of every function."""
    for node in ast.walk(syntax(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            lines = node.end_lineno - node.lineno + 1
            first = node.body[0]
            if ast.get_docstring(node, clean=False) is not None and first.end_lineno:
                lines -= first.end_lineno - first.lineno + 1
            yield f"{path.relative_to(REPOSITORY)}::{node.name}", lines


@pytest.mark.parametrize("package", PACKAGES)
def test_modules_stay_small(package: str) -> None:
    """A module over the ceiling is split, or listed with its reason."""
    long = {
        str(path.relative_to(REPOSITORY)): lines
        for path in modules(package).values()
        if (lines := len(path.read_text("utf-8").splitlines())) > MAX_MODULE_LINES
    }
    assert {name: lines for name, lines in long.items() if name not in LONGER_MODULES} == {}


@pytest.mark.parametrize("package", PACKAGES)
def test_functions_stay_small(package: str) -> None:
    """A function over the ceiling is split, or listed with its reason."""
    long = {
        name: lines
        for path in modules(package).values()
        for name, lines in functions(path)
        if lines > MAX_FUNCTION_LINES and name not in LONGER_FUNCTIONS
    }
    assert long == {}


def test_exceptions_are_still_needed() -> None:
    """The lists above shrink when the code does."""
    paths = [path for package in PACKAGES for path in modules(package).values()]
    sizes = {str(p.relative_to(REPOSITORY)): len(p.read_text("utf-8").splitlines()) for p in paths}
    lengths = dict(pair for path in paths for pair in functions(path))
    assert all(sizes.get(name, 0) > MAX_MODULE_LINES for name in LONGER_MODULES)
    assert all(lengths.get(name, 0) > MAX_FUNCTION_LINES for name in LONGER_FUNCTIONS)
