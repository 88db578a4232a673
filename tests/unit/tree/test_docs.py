"""What the pages promise is there."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from helpers.tree import REPOSITORY, tracked_files

if TYPE_CHECKING:
    from pathlib import Path

PAGES = [path for path in tracked_files() if path.suffix == ".md"]


@pytest.mark.parametrize("page", PAGES, ids=[str(p.relative_to(REPOSITORY)) for p in PAGES])
def test_links_lead_to_files(page: Path) -> None:
    """A relative link names a file that exists, seen from the page."""
    links = re.findall(r"\]\((?!https?://)([^)#\s]+)", page.read_text("utf-8"))
    missing = [link for link in links if not (page.parent / link).exists()]
    assert not missing


def test_the_readme_names_every_page() -> None:
    """A page in docs/ that the README does not name is not found by anybody."""
    text = (REPOSITORY / "README.md").read_text("utf-8")
    pages = [path for path in PAGES if path.parent.name == "docs"]
    unnamed = [path.name for path in pages if f"(docs/{path.name})" not in text]
    assert pages
    assert not unnamed
