"""Measures a service curve through ONNX Runtime: `python -m load.simulate.measure MODEL`."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from statistics import mean, median, pstdev

from load.models import CATALOGUE, model_path, session, write_repository

SIZES = (1, 2, 4, 8, 16, 32)
LEAST_RUNS, LEAST_S = 5, 0.5  # a size


def main(name: str) -> None:
    """Print the curve as JSON that `load.simulate` reads."""
    points, spreads = [], []
    with tempfile.TemporaryDirectory() as folder:
        runner = session(model_path(write_repository(Path(folder), [name]), name))
        for rows in SIZES:
            x = CATALOGUE[name].sample(rows)
            runner.run(None, {"x": x})
            took: list[float] = []
            while len(took) < LEAST_RUNS or sum(took) < LEAST_S:
                began = time.perf_counter()
                runner.run(None, {"x": x})
                took.append(time.perf_counter() - began)
            middle = sorted(took)[: max(len(took) * 9 // 10, 1)]  # the rest met other programs
            points.append((rows, median(took)))
            spreads.append(pstdev(middle) / mean(middle))
    curve = {"name": name, "points": points, "spread": median(spreads), "max_rows": SIZES[-1]}
    print(json.dumps(curve))


if __name__ == "__main__":
    main(*sys.argv[1:])
