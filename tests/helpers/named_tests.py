"""Tests that a page of the documentation names: whether each is there."""

from __future__ import annotations

import ast
import re

from helpers.tree import REPOSITORY, syntax

NAMED = re.compile(r"`([\w/]+\.py)::(test_\w+)`")


def missing_tests(text: str) -> list[str]:
    """Those named in a text, as `folder/file.py::test_name`, that are not there."""
    return [
        f"{file}::{name}"
        for file, name in NAMED.findall(text)
        if not (path := REPOSITORY / "tests" / file).is_file()
        or name
        not in {node.name for node in syntax(path).body if isinstance(node, ast.FunctionDef)}
    ]
