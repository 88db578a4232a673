"""The pages on TensorRT's releases say what the compiled bindings say."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from helpers.tree import REPOSITORY
from helpers.trt_bindings import describe, member
from helpers.trt_describe import Description
from helpers.trt_matrix import render
from helpers.trt_wheels import ANCESTORS, BINDINGS, Wheel

# The first test of a run fetches wheels of about 1 MB each.
pytestmark = pytest.mark.timeout(300)

DOCS = REPOSITORY / "docs"
MIGRATION = (DOCS / "migration.md").read_text("utf-8")
BLOCK = re.compile(r"^```python( 8\.6)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
OWNERS = {  # how the snippets call what they use
    "runtime": "Runtime",
    "engine": "ICudaEngine",
    "context": "IExecutionContext",
    "builder": "Builder",
    "network": "INetworkDefinition",
    "parser": "OnnxParser",
    "profile": "IOptimizationProfile",
    "config": "IBuilderConfig",
}
SNIPPETS = [(bool(old), text) for old, text in BLOCK.findall(MIGRATION)]


def test_the_matrix_is_what_the_bindings_say() -> None:
    """docs/tensorrt-versions.md is what `make trt-matrix` would write."""
    page = render()
    print(page)
    assert (DOCS / "tensorrt-versions.md").read_text("utf-8") == page


def touched(text: str) -> Iterator[tuple[str, str, str]]:
    """Give (class or "", member, enum member or "") of TensorRT that a snippet touches."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id == "trt":
                yield "", node.attr, ""
            elif node.value.id in OWNERS:
                yield OWNERS[node.value.id], node.attr, ""
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute):
            inner = node.value
            if isinstance(inner.value, ast.Name) and inner.value.id == "trt":
                yield "", inner.attr, node.attr


def unknown(text: str, real: Description) -> list[str]:
    """Return what a snippet touches and these bindings do not have."""
    found = []
    for owner, name, value in touched(text):
        names = set(map(member, real.classes.get(owner, [])))
        if not owner:
            names |= real.classes.keys() | real.enums.keys()
        is_there = name in names and (not value or value in real.enums.get(name, [value]))
        if not is_there:
            found.append(".".join(filter(None, (owner, name, value))))
    return found


@pytest.mark.parametrize(
    ("is_old", "text"), SNIPPETS, ids=[f"snippet-{n}" for n in range(len(SNIPPETS))]
)
def test_snippets_name_what_is_there(is_old: bool, text: str) -> None:
    """Today's snippets hold for 11.4, and those of the past for the release they are of."""
    wheel = ANCESTORS[0] if is_old else BINDINGS[3]
    assert wheel.version.startswith("8.6" if is_old else "11.4")
    assert list(touched(text))
    assert unknown(text, describe(wheel)) == []


def test_the_old_snippets_are_of_the_past() -> None:
    """Each of them has something that 11.4 no longer has, or it would need no migration."""
    old = [text for is_old, text in SNIPPETS if is_old]
    assert old
    assert all(unknown(text, describe(BINDINGS[3])) for text in old)


def test_every_name_in_the_text_exists_in_some_release() -> None:
    """A method or property that the page names in passing is one of TensorRT's, of some release."""
    reals = [describe(wheel) for wheel in (*ANCESTORS, *BINDINGS)]
    known = {member(line) for real in reals for lines in real.classes.values() for line in lines}
    known |= {name for real in reals for names in real.enums.values() for name in names}
    prose = BLOCK.sub("", MIGRATION)
    named = set(re.findall(r"`(?:\w+\.)?([a-z]+(?:_[a-z0-9]+)+)(?:\([^`]*\))?`", prose))
    assert named
    assert named - known == set()


RELEASES = {  # row of the page's table → the bindings with it, and those of the release before
    "8.6": (ANCESTORS[0], None),  # there are no bindings of 8.5 to compare with
    "10.0": (ANCESTORS[1], ANCESTORS[0]),
    "10.1": (BINDINGS[0], ANCESTORS[1]),
    "10.11": (BINDINGS[1], BINDINGS[0]),
    "11.0": (BINDINGS[2], BINDINGS[1]),
}
CLASSES = set(OWNERS.values())
FLAGS = {"BuilderFlag", "NetworkDefinitionCreationFlag"}


def names(wheel: Wheel) -> set[str]:
    """Return what the classes and flags that a migration meets have."""
    real = describe(wheel)
    found = {member(line) for owner in CLASSES for line in real.classes.get(owner, [])}
    return found | {name for owner in FLAGS for name in real.enums.get(owner, [])}


@pytest.mark.parametrize("release", RELEASES)
def test_what_came_and_went_did_so_then(release: str) -> None:
    """What the table says that a release brought or removed is the difference between two."""
    row = re.search(rf"^\| {re.escape(release)} \| (.*) \| (.*) \|$", MIGRATION, re.MULTILINE)
    assert row
    came, went = (set(re.findall(r"`(\w+)`", cell)) for cell in row.groups())
    now, before = RELEASES[release]
    assert came | went
    assert came <= names(now)
    if before:
        assert not came & names(before)
        assert went <= names(before)
        assert not went & names(now)
