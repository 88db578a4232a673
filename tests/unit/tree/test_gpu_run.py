"""`make test-gpu` is green only when something was proven."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from helpers.tree import REPOSITORY

if TYPE_CHECKING:
    from pathlib import Path

SKIPPED = "import pytest\npytest.skip('no GPU', allow_module_level=True)\n"
PASSED = "def test_one() -> None:\n    assert True\n"
FAILED = "def test_one() -> None:\n    assert False\n"


@pytest.mark.parametrize(
    ("files", "status"),
    [
        ({}, 1),
        ({"test_a.py": SKIPPED}, 1),
        ({"test_a.py": PASSED, "test_b.py": SKIPPED}, 0),
        ({"test_a.py": PASSED, "test_b.py": FAILED}, 1),
    ],
    ids=["none", "all skipped", "one passed", "one failed"],
)
def test_a_run_without_a_passed_test_fails(
    files: dict[str, str], status: int, tmp_path: Path
) -> None:
    """Everything skipped, or nothing there, is exit status 1 and says why."""
    for name, text in files.items():
        (tmp_path / name).write_text(text, "utf-8")
    settings = REPOSITORY / "tests" / "gpu" / "pytest.ini"
    options = ["-c", str(settings), "-p", "helpers.must_run", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": "tests", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        check=False,
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert done.returncode == status, done.stdout + done.stderr
    assert ("proves nothing" in done.stdout) == (PASSED not in files.values())
