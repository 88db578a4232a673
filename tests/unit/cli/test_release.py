"""The version is told however headrace came here."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from headrace import release as module
from headrace.release import UNKNOWN, release
from helpers.tree import REPOSITORY


def test_what_is_installed_goes_first(tmp_path: Path) -> None:
    """Whatever lies beside the package."""
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "9"')
    assert release(tmp_path / "pyproject.toml") == version("headrace-server")


def test_a_source_tree_says_that_it_is_one() -> None:
    """The package is imported by its path, in an interpreter that has no packages at all."""
    done = subprocess.run(
        [sys.executable, "-S", "-c", "from headrace.release import release; print(release())"],
        env={"PYTHONPATH": str(REPOSITORY / "server")},
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.strip() == f"{version('headrace-server')}+source"


@pytest.mark.parametrize("text", [None, "[project", "[project]", "[tool]\nversion = '1'"])
def test_without_either_it_is_unknown(
    text: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server starts all the same."""
    monkeypatch.setattr(module, "DISTRIBUTION", "headrace-that-nobody-has")
    path = tmp_path / "pyproject.toml"
    if text is not None:
        path.write_text(text)
    assert release(path) == UNKNOWN
