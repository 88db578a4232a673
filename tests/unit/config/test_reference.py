"""docs/configuration.md is what the declarations say."""

from __future__ import annotations

from pathlib import Path

from headrace.config import OPTIONS
from headrace.config.reference import markdown

PAGE = Path(__file__).parents[3] / "docs" / "configuration.md"


def test_the_page_is_what_the_code_says() -> None:
    """Run `python -m headrace.config.reference > docs/configuration.md` when this fails."""
    assert PAGE.read_text(encoding="utf-8") == markdown()


def test_every_setting_is_explained() -> None:
    """Each one has a help sentence of its own that ends as sentences do."""
    assert len({option.help for option in OPTIONS}) == len(OPTIONS)
    for option in OPTIONS:
        assert option.help.endswith("."), option.name
        assert option.flag in markdown() or option.declaration.is_argument
