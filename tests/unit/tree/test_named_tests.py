"""Pages that name tests name such as are there."""

from __future__ import annotations

import re

import pytest

from helpers.named_tests import NAMED, missing_tests
from helpers.tree import REPOSITORY

SECURITY = (REPOSITORY / "docs/security.md").read_text()
SECTION = SECURITY.partition("## Classes of holes")[2].partition("\n## ")[0]
CLASSES = re.findall(r"^\| (.+?) \| (.+?) \| (.+?) \|$", SECTION, re.MULTILINE)[2:]


@pytest.mark.parametrize("page", ["docs/security.md", "docs/rules.md"])
def test_named_tests_exist(page: str) -> None:
    """A test that is renamed or removed is missed here."""
    assert missing_tests((REPOSITORY / page).read_text()) == []


def test_every_class_of_holes_has_a_test() -> None:
    """A claim that nothing holds is no answer."""
    assert len(CLASSES) > 20
    assert [name for name, _, tests in CLASSES if not NAMED.search(tests)] == []
