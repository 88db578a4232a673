"""`make help` tells the truth about the Makefile."""

from __future__ import annotations

import re
import subprocess

import pytest

from helpers.tree import REPOSITORY

PROMISED = [
    *("setup", "demo", "serve", "test", "test-peers", "test-gpu", "bench", "proto", "proto-check"),
    *("test-tensorrt", "trt-matrix", "simulate"),
    *("fmt", "lint", "types", "image", "clean"),
]
MAKEFILE = (REPOSITORY / "Makefile").read_text("utf-8")


def make(*arguments: str) -> str:
    """Run make without its surroundings' flags; return what it prints."""
    done = subprocess.run(
        ["make", "--no-print-directory", *arguments],
        cwd=REPOSITORY,
        env={"PATH": "/usr/local/bin:/usr/bin:/bin"},
        check=True,
        capture_output=True,
        text=True,
        timeout=20,
    )
    return done.stdout


def test_help_lists_every_target() -> None:
    """What help lists, what is declared phony and what has a rule are one set."""
    listed = set(re.findall(r"^  make ([a-z-]+) ", make("help"), re.MULTILINE))
    phony = set(re.search(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)[1].split())  # type: ignore[index]
    assert listed == phony
    assert set(PROMISED) <= listed


def test_make_alone_is_help() -> None:
    """Typing `make` shows the list and changes nothing."""
    assert make() == make("help")


@pytest.mark.parametrize("target", PROMISED)
def test_recipes_are_lines_that_a_person_could_type(target: str) -> None:
    """A recipe has no continued lines and at most two commands."""
    rule = re.search(rf"^{target}:.*\n((?:\t.*\n)*)", MAKEFILE, re.MULTILINE)
    assert rule
    assert "\\\n" not in rule[1]
    assert len(rule[1].splitlines()) <= 2


@pytest.mark.parametrize("target", PROMISED)
def test_recipes_name_files_that_exist(target: str) -> None:
    """A dry run names only scripts and test folders of this repository that are there."""
    planned = make("--dry-run", target)
    named = re.findall(r"(?<![\w/.-])((?:deploy|tests|tools|proto)/[\w./-]+)", planned)
    missing = [name for name in named if not (REPOSITORY / name).exists()]
    assert not missing
