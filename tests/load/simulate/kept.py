"""Keeps the figures of a sweep as CSV, so that a page can be written anew without running it."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Final

from load.simulate.figures import Figures
from load.simulate.lead import Results
from load.simulate.policies import Policy
from load.simulate.sweep import Run

KEYS: Final = ("process", "load", "policy", "seed")
COUNTED: Final = ("batch_rows", "drops")  # too much for a line
NUMBERS: Final = [each.name for each in fields(Figures) if each.name not in COUNTED]


def write_results(path: Path, results: Results) -> None:
    """Write one line for each run, numbers to six digits."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*KEYS, *NUMBERS])
        for run, figures in results.items():
            numbers = [f"{getattr(figures, name):.6g}" for name in NUMBERS]
            writer.writerow([run.process, f"{run.load:g}", run.policy.name, run.seed, *numbers])


def read_results(path: Path, policies: Sequence[Policy]) -> Results:
    """Read what `write_results` wrote; batches and drops are not in it.

    Raises:
        KeyError: A line is of a policy that is not among these.
    """
    by_name = {policy.name: policy for policy in policies}
    with path.open(encoding="utf-8", newline="") as file:
        return {
            Run(
                by_name[row["policy"]], row["process"], float(row["load"]), int(row["seed"])
            ): Figures(
                **{name: float(row[name]) for name in NUMBERS},
                batch_rows={},
                drops={},
            )
            for row in csv.DictReader(file)
        }
