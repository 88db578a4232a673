"""Where headrace answers otherwise than Triton, as listed in tests/peers/differences.toml."""

from __future__ import annotations

import tomllib
from pathlib import Path

_FILE = Path(__file__).parents[1] / "peers" / "differences.toml"


def _read() -> dict[tuple[str, str], str]:
    found: dict[tuple[str, str], str] = {}
    for difference in tomllib.loads(_FILE.read_text())["difference"]:
        why = difference.pop("why")
        for setup, cases in difference.items():
            for case in cases:
                assert (setup, case) not in found, f"{setup}: {case} is listed twice"
                found[setup, case] = why
    return found


DIFFERENCES = _read()
"""By set-up and case the reason, in the file's order."""
