"""The benchmark runs, and its figures are figures."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from load.bench import main
from load.report import Row, rows, table
from load.targets import targets_of
from load.work import QUICK_WORKS, WORKS, Figures


@pytest.mark.timeout(180)
def test_quick_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every server does every piece of work, and each number is finite and above zero."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    assert main(["--quick", "--json", str(tmp_path / "bench.json")]) == 0
    made = [Row(**row) for row in json.loads((tmp_path / "bench.json").read_text())["rows"]]
    wanted = {(work.name, name) for work in QUICK_WORKS for name in targets_of(work)}
    assert wanted <= {(row.work, row.server) for row in made}
    for row in made:
        for figure in (row.rate, row.p50_ms, row.p99_ms, row.cpu_s_per_1000):
            assert math.isfinite(figure)
            assert figure > 0 or figure is row.cpu_s_per_1000
        assert row.p50_ms <= row.p99_ms
    assert "headrace native" in capsys.readouterr().out


def test_ratios_are_taken_round_by_round() -> None:
    """A slow round slows both, and leaves the ratio alone; the spread tells of it."""
    work = next(work for work in WORKS if work.model == "identity_64b")
    ours = [Figures(rate, 1, 2, 0.2) for rate in (50, 10, 40)]
    floors = [Figures(rate, 1, 2, 0.1) for rate in (100, 20, 80)]
    of_floor, of_ours = rows({(work, "native echo"): floors, (work, "headrace native"): ours})
    assert (of_floor.floor, of_floor.rate_to_floor) == ("", None)
    assert (of_ours.floor, of_ours.rate_to_floor) == ("native echo", 0.5)
    assert of_ours.cpu_to_floor == pytest.approx(2)
    assert (of_ours.rate, of_ours.spread) == (40, 1.0)
    assert "| headrace native | 40 | 100% | 1 | 2 | 0.2 | 0.50 (native echo) | 2.00 |" in table(
        [of_floor, of_ours]
    )
