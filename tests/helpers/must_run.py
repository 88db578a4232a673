"""pytest plugin (`-p helpers.must_run`): a run in which no test passed is a failure.

On a machine that was lent for its GPU, "everything skipped" means that nothing was proven.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say why the exit status is a failure."""
    if not terminalreporter.stats.get("passed"):
        terminalreporter.write_line("ERROR: no test passed, so this run proves nothing", red=True)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Turn a green exit without a passed test into exit status 1."""
    reporter: pytest.TerminalReporter | None = session.config.pluginmanager.get_plugin(
        "terminalreporter"
    )
    if session.exitstatus in (0, 5) and reporter and not reporter.stats.get("passed"):
        session.exitstatus = 1
