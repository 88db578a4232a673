"""Each rule of docs/rules.md names tests that are there."""

from __future__ import annotations

import re

import pytest

from helpers.named_tests import NAMED, missing_tests
from helpers.tree import REPOSITORY

ROWS = re.findall(
    r"^\| (\d+) \| (.+?) \| (.+?) \|$", (REPOSITORY / "docs/rules.md").read_text(), re.MULTILINE
)


def test_there_are_ten() -> None:
    """None was lost."""
    assert [number for number, _, _ in ROWS] == [str(number) for number in range(1, 11)]


@pytest.mark.parametrize(("number", "rule", "tests"), ROWS, ids=[row[0] for row in ROWS])
def test_a_rule_is_held_by_tests_that_exist(number: str, rule: str, tests: str) -> None:
    """A test that is renamed or removed is missed here."""
    named = NAMED.findall(tests)
    assert named, f"rule {number} ({rule}) names no test"
    assert NAMED.sub("", tests).split() == [], "something in the last column is no test's name"
    assert missing_tests(tests) == []
