"""The project speaks of itself alone, in its own words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from helpers.tree import REPOSITORY, is_generated, modules, tracked_files

FORBIDDEN = {
    "a folder of one machine": r"/(?:work|root|home)/(?!headrace)[a-z]|/tmp/(?!headrace)[a-z]+/",
    "a package registry's host": r"\b(?:pypi|pythonhosted|npmjs)\.(?:org|com)/(?:simple|pypi)",
    "a text outside the repository": r"DESIGN\.md|style\.md|(?:wire-protocol|python-api)\.md",
    "a number of an issue": r"\b[Ii]ssue #?\d",
    "unfinished work": r"\b(?:TODO|FIXME|XXX)\b",
    "an unresolved merge": r"^(?:<{7}|>{7}) ",
}
BINARY = {".onnx", ".plan", ".png", ".npy", ".npz"}
UNSAID_NAMES = re.compile(r"manager|handler|util|helper", re.IGNORECASE)


@pytest.mark.parametrize("what", FORBIDDEN)
def test_files_do_not_mention(what: str) -> None:
    """Nothing that is tracked names a machine, a registry or work left undone."""
    pattern = re.compile(FORBIDDEN[what], re.MULTILINE)
    found = [
        f"{path.relative_to(REPOSITORY)}: {match[0]!r}"
        for path in tracked_files()
        if path.suffix not in BINARY and path.name != "LICENSE" and path != Path(__file__)
        for match in pattern.finditer(path.read_text("utf-8"))
    ]
    assert not found


def test_server_modules_are_nouns_of_the_domain() -> None:
    """No module of the server is called by what it does for others instead of what it is."""
    assert [name for name in modules("headrace") if UNSAID_NAMES.search(name)] == []


@pytest.mark.parametrize("package", ["headrace", "headrace_client", "headrace_proto"])
def test_modules_open_alike(package: str) -> None:
    """A module says in one sentence what it is, and postpones the evaluation of annotations."""
    for path in modules(package).values():
        text = path.read_text("utf-8")
        assert text.startswith(('"""', 'r"""')), f"{path} opens without a docstring"
        is_init = path.name == "__init__.py"
        assert is_init or "from __future__ import annotations" in text, f"{path}: no __future__"


def test_generated_code_is_not_judged() -> None:
    """The rules above leave generated code alone, and there is some."""
    generated = [path for path in tracked_files() if path.suffix == ".py" and is_generated(path)]
    assert generated
    assert not set(generated) & set(modules("headrace_proto").values())
