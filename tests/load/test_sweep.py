"""Sweeps over load: what is compared, how it is told, and the page that shows it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from load.simulate import docs
from load.simulate.__main__ import main
from load.simulate.chart import write_chart
from load.simulate.curves import CURVES
from load.simulate.figures import Figures
from load.simulate.kept import read_results
from load.simulate.lead import hardest
from load.simulate.policies import Policy, policies
from load.simulate.sweep import Run, Setting, run, stand_in, sweep
from load.simulate.tables import behind_rows, sweep_table

SHORT = Setting(CURVES["resnet50_h200"], 1, 0.01, has_deadlines=False, duration_s=0.1)


def test_a_sweep_is_a_table_and_a_chart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every policy at every load, for each arrival process, with the seed that was asked for."""
    file, chart = tmp_path / "all.csv", tmp_path / "all.svg"
    asked = ["--seconds", "0.01", "--loads", "0.2", "1.5", "--seeds", "3"]
    main([*asked, "--csv", str(file), "--chart", str(chart)])
    compared = policies(32, 0.01)
    results = read_results(file, compared)
    wanted = product(["poisson", "on/off"], [0.2, 1.5], compared, [3])
    assert list(results) == [
        Run(policy, process, load, seed) for process, load, policy, seed in wanted
    ]
    assert "| load | rows/s | no batching | delay 0 ms |" in capsys.readouterr().out
    parts = [each.get("id", "") for each in ET.parse(chart).iter()]
    assert sum(part.startswith("axes_") for part in parts) == 4


def test_the_same_figures_draw_the_same_chart(tmp_path: Path) -> None:
    """So that a chart in the documents changes only when figures do."""
    results = {
        one: run(SHORT, one)
        for policy in policies(32, 0.01)[:2]
        for one in (Run(policy, "poisson", 0.1), Run(policy, "poisson", 0.2))
    }
    for name in ("one.svg", "other.svg"):
        write_chart(tmp_path / name, SHORT, results)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "other.svg").read_bytes()


def test_processes_give_the_figures_that_one_gives() -> None:
    """Nothing of how runs are spread shows in them."""
    (policy,) = policies(32, 0.01)[-1:]
    found = sweep(SHORT, [policy], ["poisson", "on/off"], [0.1, 0.3], seeds=[1, 2])
    assert found == {one: run(SHORT, one) for one in found}
    assert len(set(map(str, found.values()))) == 8, "each run has arrivals of its own"


def test_every_policy_meets_the_same_arrivals() -> None:
    """So that they can be compared seed by seed."""
    offered = {
        run(SHORT, Run(policy, "on/off", 0.3, seed=2)).offered_per_s
        for policy in policies(32, 0.01)[-3:]
    }
    assert len(offered) == 1


def test_delays_as_long_as_deadlines_are_one() -> None:
    """So that a sweep plays the first of them only; those that are shorter differ."""
    setting = replace(SHORT, has_deadlines=True, duration_s=0.05)
    compared = policies(32, setting.target_s)
    played = {policy.name: stand_in(setting, policy, compared).name for policy in compared}
    assert played == {
        **{name: name for name in played},
        "delay 20 ms": "delay 10 ms",
        "delay 50 ms": "delay 10 ms",
    }
    found = {
        policy.name: run(setting, Run(policy, "on/off", 1.1))
        for policy in compared
        if policy.name in {"delay 5 ms", "delay 10 ms", "delay 50 ms"}
    }
    assert found["delay 5 ms"] != found["delay 10 ms"] == found["delay 50 ms"]


def figures(share: float) -> Figures:
    """Return figures that say nothing but the share in time."""
    return Figures(1.0, 1.0, share, 1.0, 0.001, 0.002, 1.0, {}, {}, 1.0)


def compared(targets: Sequence[float], delays: Sequence[float]) -> dict[Run, Figures]:
    """Return the results of a target and of a delay with so many seeds."""
    return {
        Run(Policy(name), "poisson", 0.5, seed): figures(share)
        for name, shares in (("delay 1 ms", delays), ("target", targets))
        for seed, share in enumerate(shares)
    }


@pytest.mark.parametrize(
    ("targets", "delays", "says"),
    [
        ((0.90, 0.95, 0.99), (0.89, 0.93, 0.98), "ahead"),
        ((0.89, 0.93, 0.98), (0.90, 0.95, 0.99), "behind"),
        ((0.90, 0.95, 0.99), (0.80, 0.85, 0.995), "level"),  # one seed says otherwise
        ((0.90, 0.95, 0.99), (0.8995, 0.9495, 0.9895), "level"),  # too little
    ],
)
def test_ahead_is_what_every_seed_says(
    targets: Sequence[float], delays: Sequence[float], says: str
) -> None:
    """Seed by seed, on the same arrivals: the worst of them decides."""
    results = compared(targets, delays)
    ((_, _, against),) = hardest(results)
    assert (against.is_ahead, against.is_behind) == (says == "ahead", says == "behind")
    assert len(list(behind_rows("here", results))) == (says == "behind")


def test_the_page_shows_the_figures_that_are_kept() -> None:
    """Text and tables of docs/scheduling-simulation.md are of one sweep: none is edited."""
    page = docs.PAGE.read_text("utf-8")
    found = docs.kept_results()
    assert docs.lead_table(found) in page
    assert docs.behind_table(found) in page
    for name, results in found.items():
        for process in docs.PROCESSES:
            assert sweep_table(docs.SWEEPS[name], results, process) in page
        assert f"(charts/{name}.svg)" in page
