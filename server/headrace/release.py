"""The version of headrace that runs: of the distribution, or of the source tree it runs out of."""

from __future__ import annotations

import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

DISTRIBUTION: Final = "headrace-server"
UNKNOWN: Final = "0+unknown"


def release(project: Path | None = None) -> str:
    """Return the version.

    Args:
        project: The pyproject.toml that tells it where nothing is installed; by default the one
            beside the package.

    Returns:
        As installed; else the source tree's with `+source`, `0+unknown` where there is none.
    """
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        pass
    try:
        told = tomllib.loads((project or _beside()).read_text("utf-8"))
        return f"{told['project']['version']}+source"
    except (OSError, ValueError, KeyError):
        return UNKNOWN


def _beside() -> Path:
    return Path(__file__).parents[1] / "pyproject.toml"
