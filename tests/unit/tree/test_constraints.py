"""constraints.txt pins all that the workspace asks for, and says nothing of where it comes from."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest

from helpers.tree import REPOSITORY

LINES = (REPOSITORY / "constraints.txt").read_text("utf-8").splitlines()
PINNED = {line.split("==")[0] for line in LINES}
ELSEWHERE = {"fuzz", "proto"}  # environments of their own, pinned where they are named


def read(path: str) -> dict[str, Any]:
    """Read a TOML file of the repository."""
    return tomllib.loads((REPOSITORY / path).read_text("utf-8"))


def asked_for() -> set[str]:
    """Return the names of every requirement of the distributions, their extras and the groups."""
    texts: list[str] = []
    for folder in ("proto", "server", "client"):
        project = read(f"{folder}/pyproject.toml")["project"]
        texts += project["dependencies"]
        texts += [
            text for extra in project.get("optional-dependencies", {}).values() for text in extra
        ]
    for name, group in read("pyproject.toml")["dependency-groups"].items():
        texts += [text for text in group if isinstance(text, str) and name not in ELSEWHERE]
    names = {re.split(r"[\[<>=;~ ]", text)[0] for text in texts}
    return {name.replace("_", "-").lower() for name in names if not name.startswith("headrace")}


def test_every_requirement_is_pinned() -> None:
    """`make lock` was run after the last new requirement."""
    assert asked_for() - PINNED == set()


@pytest.mark.parametrize("line", LINES)
def test_a_line_is_a_name_a_version_and_at_most_a_marker(line: str) -> None:
    """No address, no path, no option."""
    assert re.fullmatch(r"[a-z0-9-]+==[\w.]+( ; [\w.]+ [<>=!]+ '[\w.]+'( and .*)?)?", line)


@pytest.mark.parametrize("name", sorted(ELSEWHERE))
def test_what_lives_elsewhere_is_pinned_where_it_is_named(name: str) -> None:
    """Another version of the generator may write other bytes; the fuzzer's need other Pythons."""
    assert all("==" in text for text in read("pyproject.toml")["dependency-groups"][name])
